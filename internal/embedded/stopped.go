package embedded

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// AwaitStopped waits until every thread of the processes has stopped after a SIGSTOP, or 5 s: the signal returns before
// the threads on other processors have seen it, and they still answer for a moment. Without /proc it does not wait.
func AwaitStopped(pids ...int) {
	waitWhile(runs, pids)
}

// runs tells whether a thread of the process is neither stopped nor ended.
func runs(pid int) bool {
	paths, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		state := bytes.TrimLeft(text[bytes.LastIndexByte(text, ')')+1:], " ")
		if len(state) > 0 && !bytes.ContainsAny(state[:1], "TtZX") {
			return true
		}
	}
	return false
}
