package peers

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// Result is everything that was measured.
type Result struct {
	Rows          int      `json:"rows"`           // of each drain
	WatermillRows int      `json:"watermill_rows"` // of each of watermill's
	Drains        []Drain  `json:"drains"`
	Singles       []Single `json:"singles"`
	Kills         []Kill   `json:"kills"`
	Versus        []Versus `json:"versus"`
}

// Versus is Hubstate beside one peer, medians of all drains.
type Versus struct {
	Peer   string  `json:"peer"`
	Speed  float64 `json:"speed"`  // our records per second : those of its second half
	Memory float64 `json:"memory"` // its peak : ours
}

// median of one figure over all drains of a peer; 0 without any.
func (res *Result) median(peer string, figure func(Drain) float64) float64 {
	_, middle, _ := res.spread(peer, figure)
	return middle
}

func (res *Result) spread(peer string, figure func(Drain) float64) (least, middle, most float64) {
	var all []float64
	for _, d := range res.Drains {
		if d.Peer == peer {
			all = append(all, figure(d))
		}
	}
	if len(all) == 0 {
		return 0, 0, 0
	}
	slices.Sort(all)
	return all[0], all[len(all)/2], all[len(all)-1]
}

// compare fills in Versus: all of our drain beside the warm half of the peer's.
func (res *Result) compare() {
	speed := res.median(Hubstate, func(d Drain) float64 { return d.PerSecond })
	memory := res.median(Hubstate, func(d Drain) float64 { return d.MemoryMiB })
	for _, name := range Names() {
		warm := res.median(name, func(d Drain) float64 { return d.SecondHalf })
		if name == Hubstate || warm == 0 || speed == 0 {
			continue
		}
		res.Versus = append(res.Versus, Versus{
			Peer: name, Speed: speed / warm, Memory: res.median(name, func(d Drain) float64 { return d.MemoryMiB }) / memory,
		})
	}
}

// Print writes the tables: medians, ranges of the rates, CPU in µs a record.
func (res *Result) Print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\npeer\trows\tto last record s\trecords/s\trange\tsecond half/s\tCPU µs/record: peer\tPostgreSQL\tKafka\tpeak MiB\t")
	for _, name := range Names() {
		if i := slices.IndexFunc(res.Drains, func(d Drain) bool { return d.Peer == name }); i >= 0 {
			res.printDrains(w, name, res.Drains[i].Rows)
		}
	}
	fmt.Fprintln(w, "\npeer\tsingle rows\tp50 ms\tp99 ms\t")
	for _, s := range res.Singles {
		fmt.Fprintf(w, "%s\t%d\t%.1f\t%.1f\t\n", s.Peer, s.Rows, s.P50, s.P99)
	}
	fmt.Fprintln(w, "\npeer\tbacklog\tkill -9\tlost\trepeated\treordered\tseconds\t")
	for _, k := range res.Kills {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%.1f\t\n", k.Peer, k.Rows, k.Kills, k.Lost, k.Repeated, k.Reordered, k.Seconds)
	}
	fmt.Fprintln(w, "\npeer\tour records/s : its second half\tits memory : ours\t")
	for _, v := range res.Versus {
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t\n", v.Peer, v.Speed, v.Memory)
	}
	_ = w.Flush()
}

func (res *Result) printDrains(w io.Writer, name string, rows int) {
	micros := func(seconds func(Drain) float64) float64 { return res.median(name, seconds) * 1e6 / float64(rows) }
	least, rate, most := res.spread(name, func(d Drain) float64 { return d.PerSecond })
	fmt.Fprintf(w, "%s\t%d\t%.1f\t%.0f\t%.0f–%.0f\t%.0f\t%.1f\t%.1f\t%.1f\t%.0f\t\n", name, rows,
		res.median(name, func(d Drain) float64 { return d.ToLast }), rate, least, most,
		res.median(name, func(d Drain) float64 { return d.SecondHalf }),
		micros(func(d Drain) float64 { return d.ClientCPU }), micros(func(d Drain) float64 { return d.ServerCPU }), micros(func(d Drain) float64 { return d.KafkaCPU }),
		res.median(name, func(d Drain) float64 { return d.MemoryMiB }))
}
