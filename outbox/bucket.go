package outbox

// Bucket maps a key to 0..buckets-1: positive murmur2 modulo buckets, which is what Kafka's default partitioner does.
// When the partition count divides buckets, a bucket therefore lies in exactly one partition: bucket mod partitions.
func Bucket(key string, buckets int) int16 {
	return int16(int(murmur2(key)&0x7fffffff) % buckets)
}

// Partition is the Kafka partition of a bucket, for a partition count that divides the bucket count.
func Partition(bucket int16, partitions int) int32 { return int32(int(bucket) % partitions) }

// murmur2 is org.apache.kafka.common.utils.Utils.murmur2; the property test compares it with franz-go's.
func murmur2(b string) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
	)
	h := uint32(seed) ^ uint32(len(b))
	for len(b) >= 4 {
		k := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
		k *= m
		k ^= k >> 24
		k *= m
		h = h*m ^ k
		b = b[4:]
	}
	switch len(b) {
	case 3:
		h ^= uint32(b[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(b[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(b[0])) * m
	}
	h ^= h >> 13
	h *= m
	return h ^ h>>15
}
