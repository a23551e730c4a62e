package lint

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// checkDocLinks follows every relative link and every path in `code` of the pages, heading anchors included, and every
// page that code, configuration or a unit file mentions: an error that says "see docs/…" is read in a hurry.
func checkDocLinks(t *Tree) []Violation {
	entries := t.entries()
	return append(t.pageLinks(entries), t.mentions(entries)...)
}

func (t *Tree) mentions(entries map[string]bool) []Violation {
	mention := regexp.MustCompile(`\bdocs/[\w/-]+\.md`)
	files := slices.DeleteFunc(slices.Clone(t.Files), func(f *File) bool {
		return path.Ext(f.Path) == ".md" || within(f.Path, "internal/lint")
	})
	return collect("doc-links", files, func(f *File) []Violation {
		var vs []Violation
		for i, line := range strings.Split(string(f.Data), "\n") {
			for _, page := range mention.FindAllString(line, -1) {
				if !entries[page] {
					vs = append(vs, Violation{Line: i + 1, Message: fmt.Sprintf("%s does not exist", page)})
				}
			}
		}
		return vs
	})
}

func (t *Tree) pageLinks(entries map[string]bool) []Violation {
	return collect("doc-links", t.pages(), func(f *File) []Violation {
		var vs []Violation
		for i, line := range strings.Split(string(f.Data), "\n") {
			for _, problem := range t.brokenLinks(f, line, entries) {
				vs = append(vs, Violation{Line: i + 1, Message: problem})
			}
		}
		return vs
	})
}

func (t *Tree) brokenLinks(f *File, line string, entries map[string]bool) []string {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	code := regexp.MustCompile("`((?:cmd|deploy|devicestate|docs|ingest|internal|loadtest|outbox|partitions)/[\\w./-]+)`")
	var problems []string
	for _, m := range link.FindAllStringSubmatch(line, -1) {
		if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
			continue
		}
		if problem := t.brokenLink(f, m[1], entries); problem != "" {
			problems = append(problems, problem)
		}
	}
	for _, m := range code.FindAllStringSubmatch(line, -1) {
		if p := strings.TrimSuffix(m[1], "/"); !entries[p] {
			problems = append(problems, fmt.Sprintf("%s does not exist", p))
		}
	}
	return problems
}

func (t *Tree) brokenLink(f *File, target string, entries map[string]bool) string {
	file, anchor, _ := strings.Cut(target, "#")
	page := f
	if file != "" {
		p := path.Join(f.Dir(), file)
		if !entries[p] {
			return fmt.Sprintf("%s does not exist", p)
		}
		page = t.File(p)
	}
	if anchor != "" && (page == nil || !anchors(page)[anchor]) {
		return fmt.Sprintf("%s has no heading for #%s", target, anchor)
	}
	return ""
}

// anchors returns the anchors that a forge makes of a page's headings.
func anchors(f *File) map[string]bool {
	drop := regexp.MustCompile(`[^\w\s-]`)
	found := map[string]bool{}
	for _, line := range strings.Split(string(f.Data), "\n") {
		if title := strings.TrimLeft(line, "#"); title != line && strings.HasPrefix(title, " ") {
			slug := drop.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			found[strings.ReplaceAll(slug, " ", "-")] = true
		}
	}
	return found
}

// pages returns the Markdown files, testdata left out.
func (t *Tree) pages() []*File {
	var pages []*File
	for _, f := range t.Files {
		if path.Ext(f.Path) == ".md" && !strings.Contains(f.Path, "testdata/") {
			pages = append(pages, f)
		}
	}
	return pages
}

// entries returns every file and every directory above one.
func (t *Tree) entries() map[string]bool {
	found := map[string]bool{}
	for _, f := range t.Files {
		for p := f.Path; p != "." && !found[p]; p = path.Dir(p) {
			found[p] = true
		}
	}
	return found
}
