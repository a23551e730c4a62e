package consumer

import (
	"cmp"
	"slices"
)

// Status is what a consumer does at the moment.
type Status struct {
	Running    bool
	Partitions []PartitionStatus // that this member reads, in order
	Lag        int64             // records, the sum over Partitions
}

// PartitionStatus is one of them.
type PartitionStatus struct {
	Partition     int32
	Next          int64 // the offset up to which it is applied; Unknown before the first record
	HighWatermark int64 // the end of the partition as of the last fetch; Unknown before
	Queued        int   // records in memory
	Stalled       error // why the batch in work is being retried; nil = it is not
}

// Lag is how many records the partition has that are not applied yet.
func (p PartitionStatus) Lag() int64 { return max(0, p.HighWatermark-max(0, p.Next)) }

// Status is safe to call at any time, from any goroutine.
func (c *Consumer) Status() Status {
	r := c.current.Load()
	if r == nil {
		return Status{}
	}
	s := Status{Running: true}
	for _, p := range r.owned() {
		ps := p.status()
		s.Partitions = append(s.Partitions, ps)
		s.Lag += ps.Lag()
	}
	slices.SortFunc(s.Partitions, func(a, b PartitionStatus) int { return cmp.Compare(a.Partition, b.Partition) })
	return s
}
