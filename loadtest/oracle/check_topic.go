package oracle

// checkTopic holds the records of a stream against its rows and against each other.
func (c *checker) checkTopic(stream int) {
	rows := map[place]Row{}
	for _, row := range c.rows[stream] {
		rows[row.at()] = row
	}
	seen := map[place]bool{}
	var last place
	var explained []Range
	for i, rec := range c.records[stream] {
		c.checkRecord(rec, rows)
		if rec.Misfiled || rec.Partition != c.records[stream][0].Partition {
			c.result.event(Misfiled, rec.Event, "partition %d offset %d", rec.Partition, rec.Offset)
		}
		at := rec.at()
		switch {
		case seen[at]:
			c.result.event(TopicDuplicate, rec.Event, "partition %d offset %d", rec.Partition, rec.Offset)
			continue
		case i > 0 && at.before(last):
			c.result.event(Reordered, rec.Event, "first delivery after %d/%d, partition %d offset %d", last.epoch, last.sequence, rec.Partition, rec.Offset)
		default:
			c.checkHole(stream, rec, last)
			explained = append(explained, rec.Skipped...)
			last = at
		}
		seen[at] = true
	}
	c.checkArrived(stream, seen, explained)
}

// checkRecord holds a record against the row it came from.
func (c *checker) checkRecord(rec Record, rows map[place]Row) {
	row, known := rows[rec.at()]
	switch {
	case !known:
		c.result.event(Phantom, rec.Event, "the outbox has no such row; partition %d offset %d", rec.Partition, rec.Offset)
	case row.ID != rec.ID:
		c.result.event(Phantom, rec.Event, "the outbox has another message at this sequence; partition %d offset %d", rec.Partition, rec.Offset)
	case row.Hash != rec.Hash:
		c.result.event(Corrupt, rec.Event, "differs from its row; partition %d offset %d", rec.Partition, rec.Offset)
	}
}

// checkHole asks for an explanation in the record itself of what lies between it and the one before.
func (c *checker) checkHole(stream int, rec Record, last place) {
	from := last.sequence + 1
	if rec.Epoch > last.epoch {
		from = 1
		if last.epoch > 0 || rec.Restated {
			return // a rebase may begin anywhere
		}
	}
	if rec.Sequence <= from {
		return
	}
	if unexplained := subtract(Range{from, rec.Sequence - 1}, rec.Skipped); unexplained > 0 {
		c.result.add(Hole, unexplained, Offender{
			Device: c.Ledger.Streams[stream].Device, Stream: c.Ledger.Streams[stream].Name, Report: rec.Report, Epoch: rec.Epoch, Sequence: rec.Sequence,
			Detail: "sequences before it were not delivered and ce_skipped does not explain them",
		})
	}
}

// subtract counts the numbers of r that lie in none of the ranges.
func subtract(r Range, ranges []Range) int64 {
	left := int64(0)
	for n := r.From; n <= r.To; n++ {
		if !within(n, ranges) {
			left++
		}
	}
	return left
}

func within(n int64, ranges []Range) bool {
	for _, r := range ranges {
		if n >= r.From && n <= r.To {
			return true
		}
	}
	return false
}

// checkArrived asks of each row whether it reached the topic or has another recorded fate.
func (c *checker) checkArrived(stream int, seen map[place]bool, explained []Range) {
	for _, row := range c.rows[stream] {
		if seen[row.at()] || within(row.Sequence, explained) || c.dead[stream][row.at()] || c.skipped(stream, row) {
			continue
		}
		c.result.event(Lost, row.Event, "in the outbox at position %d of bucket %d, but never on the topic", row.Position, row.Bucket)
	}
}

func (c *checker) skipped(stream int, row Row) bool {
	for _, s := range c.Database.Skipped[stream] {
		if s.Epoch == row.Epoch && row.Sequence >= s.From && row.Sequence <= s.To {
			return true
		}
	}
	return false
}
