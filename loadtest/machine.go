package main

import (
	"os"
	"runtime"
	"strings"
)

// Machine is where a run took place; numbers mean nothing without it.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory string `json:"memory"`
	System string `json:"system"`
	Go     string `json:"go"`
}

func thisMachine() Machine {
	return Machine{
		CPU: line("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(), Memory: line("/proc/meminfo", "MemTotal"),
		System: strings.Trim(line("/etc/os-release", "PRETTY_NAME"), `"`), Go: runtime.Version(),
	}
}

// line finds the value of a key in a file of "key : value" or "key=value" lines; empty where there is none.
func line(path, key string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for l := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(l, key); ok {
			return strings.TrimSpace(strings.TrimLeft(rest, " \t:="))
		}
	}
	return ""
}
