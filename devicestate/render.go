package devicestate

// render returns value i as compact JSON without the filtered members. When nothing has to change it returns the
// payload's own bytes, without a copy.
func (d *document) render(i int, filters []pathFilter) []byte {
	if len(filters) == 0 && !d.spaces {
		return d.text(i)
	}
	return d.append(make([]byte, 0, len(d.text(i))), i, filters)
}

func (d *document) append(dst []byte, i int, filters []pathFilter) []byte {
	v := &d.values[i]
	switch {
	case v.kind == '{':
		return d.appendObject(dst, i, filters)
	case v.kind == '[' && (d.spaces || len(filters) > 0):
		return d.appendArray(dst, i, filters)
	}
	return append(dst, d.text(i)...)
}

// appendArray hands the filters to each element: a path reaches the objects inside arrays, as errors.errorDescription.
func (d *document) appendArray(dst []byte, i int, filters []pathFilter) []byte {
	dst = append(dst, '[')
	for j := i + 1; j < int(d.values[i].end); j = int(d.values[j].end) {
		if j > i+1 {
			dst = append(dst, ',')
		}
		dst = d.append(dst, j, filters)
	}
	return append(dst, ']')
}

func (d *document) appendObject(dst []byte, i int, filters []pathFilter) []byte {
	if len(filters) == 0 && !d.spaces {
		return append(dst, d.text(i)...)
	}
	dst = append(dst, '{')
	empty := true
	for j := i + 1; j < int(d.values[i].end); j = int(d.values[j].end) {
		below, verdict := d.descend(filters, &d.values[j])
		if verdict == filterDrop {
			continue
		}
		if !empty {
			dst = append(dst, ',')
		}
		empty = false
		dst = append(dst, d.src[d.values[j].keyStart-1:d.values[j].keyEnd+1]...)
		dst = append(dst, ':')
		if verdict == filterMask {
			dst = append(dst, `"***"`...)
			continue
		}
		dst = d.append(dst, j, below)
	}
	return append(dst, '}')
}

type filterVerdict int

const (
	filterKeep filterVerdict = iota
	filterDrop
	filterMask
)

// descend returns the filters that reach below the member, and what becomes of the member itself; drop beats mask.
func (d *document) descend(filters []pathFilter, member *value) ([]pathFilter, filterVerdict) {
	var below []pathFilter
	verdict := filterKeep
	for _, f := range filters {
		if string(d.rawKey(member)) != f.path[0] {
			continue
		}
		switch {
		case len(f.path) > 1:
			below = append(below, pathFilter{path: f.path[1:], mask: f.mask})
		case f.mask && verdict == filterKeep:
			verdict = filterMask
		case !f.mask:
			verdict = filterDrop
		}
	}
	return below, verdict
}
