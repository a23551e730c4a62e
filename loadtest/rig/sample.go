package rig

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Usage is what one component has used, all its processes together.
type Usage struct {
	CPU time.Duration `json:"cpu"` // since it was first seen, over restarts
	RSS int64         `json:"rss"` // bytes, now
}

// Sampler adds up what components use. It reads /proc; elsewhere it reports nothing. Not safe for concurrent use.
type Sampler struct {
	last  map[int]time.Duration // CPU of each process when last seen
	total map[string]time.Duration
}

// NewSampler counts from its first Sample.
func NewSampler() *Sampler {
	return &Sampler{last: map[int]time.Duration{}, total: map[string]time.Duration{}}
}

// Sample reads the processes of each component and their descendants. What a process used between the last sample and
// its end is not seen.
func (s *Sampler) Sample(components map[string]int) map[string]Usage {
	procs := readProcesses()
	children := map[int][]int{}
	for pid, p := range procs {
		children[p.parent] = append(children[p.parent], pid)
	}
	usage := map[string]Usage{}
	shared := map[string]int64{}
	for name, root := range components {
		group, _, _ := strings.Cut(name, "/")
		u := usage[group]
		for _, pid := range family(children, root) {
			p, alive := procs[pid]
			if !alive {
				continue
			}
			if before, seen := s.last[pid]; !seen || p.cpu >= before {
				s.total[group] += p.cpu - s.last[pid]
			}
			s.last[pid] = p.cpu
			private, common := memory(pid)
			u.RSS += private
			shared[group] = max(shared[group], common)
		}
		u.CPU = s.total[group]
		usage[group] = u
	}
	for group, common := range shared {
		u := usage[group]
		u.RSS += common
		usage[group] = u
	}
	return usage
}

func family(children map[int][]int, root int) []int {
	all := []int{root}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

type process struct {
	parent int
	cpu    time.Duration
}

// memory reads what a process has in memory, for itself and shared with others: PostgreSQL's backends all show the same
// shared buffers, which must count once.
func memory(pid int) (private, shared int64) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0, 0
	}
	f := strings.Fields(string(text))
	if len(f) < 3 {
		return 0, 0
	}
	resident, _ := strconv.ParseInt(f[1], 10, 64)
	common, _ := strconv.ParseInt(f[2], 10, 64)
	page := int64(os.Getpagesize())
	return (resident - common) * page, common * page
}

// clockTick is the unit of CPU times in /proc, the same on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

func readProcesses() map[int]process {
	procs := map[int]process{}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has just ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		if p, ok := parseStat(string(text)); ok {
			procs[pid] = p
		}
	}
	return procs
}

// parseStat reads "pid (name) state ppid …": fields are counted from the last bracket, since names may hold any.
func parseStat(text string) (p process, ok bool) {
	i := strings.LastIndexByte(text, ')')
	if i < 0 {
		return p, false
	}
	f := strings.Fields(text[i+1:])
	if len(f) < 13 {
		return p, false
	}
	number := func(at int) int64 { n, _ := strconv.ParseInt(f[at], 10, 64); return n }
	p.parent = int(number(1))
	p.cpu = time.Duration(number(11)+number(12)) * clockTick
	return p, true
}
