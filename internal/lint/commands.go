package lint

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// commandsPath is the page that the commands themselves have printed.
const commandsPath = "docs/cli.md"

// checkCommands holds every command that a page or a settings file tells somebody to type (in `code`, or indented) against
// what the binaries say they have: a runbook is typed at night, from beginning to end.
func checkCommands(t *Tree) []Violation {
	known := commandFlags(t)
	if len(known) == 0 {
		return nil
	}
	typed := regexp.MustCompile("(?:`|^    |\\|\\| |&& )((?:ingest|relay|monitor) [a-z][^`#]*)")
	pages := slices.DeleteFunc(t.pages(), func(f *File) bool { return f.Path == commandsPath })
	return collect("commands", pages, func(f *File) []Violation {
		var vs []Violation
		for i, line := range strings.Split(string(f.Data), "\n") {
			for _, m := range typed.FindAllStringSubmatch(line, -1) {
				if problem := mistyped(known, strings.TrimSpace(m[1])); problem != "" {
					vs = append(vs, Violation{Line: i + 1, Message: problem})
				}
			}
		}
		return vs
	})
}

// mistyped says what is wrong with a command line, or "".
func mistyped(known map[string]string, line string) string {
	words := strings.Fields(strings.ReplaceAll(line, "|", " | "))
	path := words[0]
	for _, w := range words[1:] {
		if _, ok := known[path+" "+w]; !ok {
			break
		}
		path += " " + w
	}
	next := words[len(strings.Fields(path)):]
	if strings.Contains(known[path], "Available Commands:") && (len(next) > 0 && regexp.MustCompile(`^[a-z-]+$`).MatchString(next[0]) || path == words[0]) {
		return fmt.Sprintf("%q is no command of %s", strings.Join(words, " "), path)
	}
	for _, w := range next {
		flag := regexp.MustCompile(`^--[a-z-]+`).FindString(w)
		if flag != "" && !strings.Contains(known[path], flag+" ") {
			return fmt.Sprintf("%s has no flag %s", path, flag)
		}
	}
	return ""
}

// commandFlags returns the help text of each command by its path, as docs/cli.md has it.
func commandFlags(t *Tree) map[string]string {
	known := map[string]string{}
	f := t.File(commandsPath)
	if f == nil {
		return known
	}
	heading := regexp.MustCompile(`^##+ ([a-z][a-z -]*)$`)
	path := ""
	for _, line := range strings.Split(string(f.Data), "\n") {
		if m := heading.FindStringSubmatch(line); m != nil {
			path = m[1]
		}
		if path != "" {
			known[path] += line + "\n"
		}
	}
	return known
}
