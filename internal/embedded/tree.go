package embedded

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// tree is pid and all its living descendants, parents first. Without /proc it is pid alone.
func tree(pid int) []int {
	children := childrenByParent()
	pids := []int{pid}
	for i := 0; i < len(pids); i++ {
		pids = append(pids, children[pids[i]]...)
	}
	return pids
}

func childrenByParent() map[int][]int {
	children := map[int][]int{}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range paths {
		pid, parent, ok := readStat(path)
		if ok {
			children[parent] = append(children[parent], pid)
		}
	}
	return children
}

// readStat reads pid and parent from "pid (name) state ppid …"; the name may hold spaces and brackets, so the fields
// are counted from the last bracket. Zombies are left out: they are only waiting to be reaped.
func readStat(path string) (pid, parent int, ok bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, false
	}
	end := bytes.LastIndexByte(text, ')')
	if end < 0 {
		return 0, 0, false
	}
	fields := bytes.Fields(text[end+1:])
	if len(fields) < 2 || string(fields[0]) == "Z" {
		return 0, 0, false
	}
	pid, err = strconv.Atoi(filepath.Base(filepath.Dir(path)))
	if err != nil {
		return 0, 0, false
	}
	parent, err = strconv.Atoi(string(fields[1]))
	return pid, parent, err == nil
}

// waitGone waits until the killed processes have ended, or 5 s. Descendants are reaped by init, not by us, so they can
// only be watched.
func waitGone(pids []int) {
	waitWhile(alive, pids)
}

func waitWhile(still func(pid int) bool, pids []int) {
	deadline := time.Now().Add(5 * time.Second)
	for _, pid := range pids {
		for still(pid) && time.Now().Before(deadline) {
			time.Sleep(2 * time.Millisecond)
		}
	}
}

func alive(pid int) bool {
	if _, err := os.Stat("/proc/self/stat"); err == nil {
		_, _, ok := readStat("/proc/" + strconv.Itoa(pid) + "/stat")
		return ok
	}
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
