package lint

import (
	"cmp"
	"fmt"
	"slices"
)

// Rule is one habit of the house. Check must not modify the tree; it may be called from several goroutines.
type Rule struct {
	Name  string // also the name of its mutation, testdata/<Name>.txtar
	Why   string // what went wrong, or would go wrong, without it
	Check func(*Tree) []Violation
}

// Violation says where a rule is broken. Line counts from 1.
type Violation struct {
	Rule    string
	Path    string
	Line    int
	Message string
}

// String formats the violation as "path:line: rule: message", which editors and terminals make clickable.
func (v Violation) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", v.Path, v.Line, v.Rule, v.Message)
}

// Rules returns all rules in the order of the package documentation.
func Rules() []Rule {
	return slices.Concat(architectureRules(), sizeRules(), codeRules(), operationsRules())
}

func architectureRules() []Rule {
	return []Rule{
		{"arrows", "imports flow one way: a mechanism that knows policy cannot be reused or tested alone", checkArrows},
		{"outside", "each foreign library has a border; one that leaks everywhere can never be replaced", checkOutside},
		{"shipped", "test servers and fakes inside a production binary are a way to lose data by configuration", checkShipped},
		{"names", "a drawer called util collects what nobody wanted to think about", checkNames},
		{"toplevel", "the root is the first page that a newcomer reads", checkTopLevel},
		{"machine-paths", "a path of one machine in a tracked file breaks on every other", checkMachinePaths},
	}
}

func sizeRules() []Rule {
	return []Rule{
		{"function-length", "a function that does not fit a screen is not read, only trusted", checkFunctionLength},
		{"function-median", "small functions are a property of the tree, not of the one being reviewed", checkFunctionMedian},
		{"file-length", "one idea a file", checkFileLength},
	}
}

func codeRules() []Rule {
	return []Rule{
		{"package-docs", "a package without an introduction is a folder", checkPackageDocs},
		{"export-docs", "an export is a promise; an unwritten promise is broken without noticing", checkExportDocs},
		{"exits", "a panic or os.Exit skips the last cursor write, the last ack and the release of the lease", checkExits},
		{"no-init", "work at import time cannot be configured, cancelled or tested", checkInit},
		{"package-variables", "two relays in one process (cmd/hub, tests) must share nothing", checkPackageVariables},
		{"goroutines", "a goroutine that nobody waits for outlives the lease it works under", checkGoroutines},
		{"log-messages", "a message with data in it cannot be counted, and the data may be a payload", checkLogMessages},
		{"sql-tags", "pg_stat_activity and the slow query log must name the statement's owner", checkSQLTags},
		{"sql-home", "SQL outside queries.go escapes the test that prepares every statement", checkSQLHome},
	}
}

func operationsRules() []Rule {
	return []Rule{
		{"metric-names", "dashboards and alerts outlive the code that feeds them", checkMetricNames},
		{"metric-labels", "a label with a device or bucket in it is a time series for each of 100,000 devices", checkMetricLabels},
		{"metric-lint", "units and suffixes as Prometheus expects them", checkMetricLint},
		{"metrics-exist", "an alert on a metric that nobody sets never fires, and a panel stays empty, without a word", checkMetricsExist},
		{"promises", "a promise that no test is named after is a wish", checkPromises},
		{"doc-links", "a page that points at nothing is not believed the next time", checkDocLinks},
		{"commands", "a runbook is typed at night, from beginning to end", checkCommands},
		{"runbook", "an alert at night without a page that says what to do is noise", checkRunbook},
	}
}

// sorted orders violations by place, for stable output.
func sorted(vs []Violation) []Violation {
	slices.SortFunc(vs, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Message, b.Message))
	})
	return vs
}
