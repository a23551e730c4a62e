package partitions

import "time"

// pause is how long a partition whose step failed is left alone: 1 minute after the first failure, doubling to 1 hour.
func pause(attempts int) time.Duration {
	return min(time.Minute<<min(max(attempts-1, 0), 6), time.Hour)
}
