package lint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// object is one decoded Kubernetes manifest.
type object struct {
	file string
	body map[string]any
}

func TestDeploy_KubernetesManifests(t *testing.T) {
	t.Parallel()
	shape := k8sShape(t)
	objects := manifests(t, func(_ string, data []byte) []byte { return data })
	if len(objects) < 14 {
		t.Fatalf("found %d objects", len(objects))
	}
	for _, problem := range slices.Concat(shapeProblems(shape, objects), referenceProblems(objects), kustomizeProblems(t, objects)) {
		t.Error(problem)
	}
}

// TestDeploy_KubernetesIsChecked proves that the checks see: each broken copy must be refused.
func TestDeploy_KubernetesIsChecked(t *testing.T) {
	t.Parallel()
	for name, swap := range map[string][3]string{
		"misspelt field":           {"relay.yaml", "replicas:", "replicaz:"},
		"selector without pods":    {"disruption.yaml", "app.kubernetes.io/name: hubstate-relay", "app.kubernetes.io/name: hubstate-relays"},
		"probe of an unknown port": {"ingest.yaml", "path: /readyz, port: admin", "path: /readyz, port: http"},
		"unknown config map":       {"monitor.yaml", "configMapRef: {name: hubstate}", "configMapRef: {name: hubstat}"},
		"container as root":        {"relay.yaml", "runAsNonRoot: true", "runAsNonRoot: false"},
		"no readiness":             {"relay.yaml", "readinessProbe:", "startupProbe:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := false
			objects := manifests(t, func(file string, data []byte) []byte {
				if filepath.Base(file) != swap[0] {
					return data
				}
				bad := bytes.Replace(data, []byte(swap[1]), []byte(swap[2]), 1)
				changed = !bytes.Equal(bad, data)
				return bad
			})
			if !changed {
				t.Fatalf("%q is not in %s any more", swap[1], swap[0])
			}
			if len(shapeProblems(k8sShape(t), objects))+len(referenceProblems(objects)) == 0 {
				t.Error("a broken manifest was accepted")
			}
		})
	}
}

func manifests(t *testing.T, change func(string, []byte) []byte) []object {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "deploy/k8s/*/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var all []object
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		decoder := yaml.NewDecoder(bytes.NewReader(change(file, data)))
		for {
			body := map[string]any{}
			err := decoder.Decode(&body) // duplicate keys are errors
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			all = append(all, object{file, body})
		}
	}
	return all
}

func k8sShape(t *testing.T) map[string]any {
	t.Helper()
	data, err := os.ReadFile("testdata/k8s-shape.yaml")
	if err != nil {
		t.Fatal(err)
	}
	shape := map[string]any{}
	if err := yaml.Unmarshal(data, &shape); err != nil {
		t.Fatal(err)
	}
	return shape
}

func shapeProblems(shape map[string]any, objects []object) []string {
	var problems []string
	for _, o := range objects {
		kind := fmt.Sprint(o.body["kind"])
		if shape[kind] == nil {
			problems = append(problems, fmt.Sprintf("%s: kind %s is not in testdata/k8s-shape.yaml", o.file, kind))
			continue
		}
		for _, p := range misfit(shape[kind], o.body, kind) {
			problems = append(problems, o.file+": "+p)
		}
	}
	return problems
}

// misfit returns the fields of value that shape does not know.
func misfit(shape, value any, at string) []string {
	var problems []string
	switch v := value.(type) {
	case []any:
		for i, e := range v {
			problems = append(problems, misfit(shape, e, fmt.Sprintf("%s[%d]", at, i))...)
		}
	case map[string]any:
		known, ok := shape.(map[string]any)
		if !ok {
			return []string{at + " has fields, a value was expected"}
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			next, ok := known[key]
			if !ok {
				next, ok = known["*"]
			}
			if !ok {
				problems = append(problems, fmt.Sprintf("unknown field %s.%s", at, key))
				continue
			}
			problems = append(problems, misfit(next, v[key], at+"."+key)...)
		}
	}
	return problems
}

// at walks into nested maps and the first elements of lists; nil when a step is missing.
func at(value any, path ...string) any {
	for _, key := range path {
		if list, ok := value.([]any); ok && len(list) > 0 {
			value = list[0]
		}
		m, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = m[key]
	}
	return value
}

func ofKind(objects []object, kinds ...string) []object {
	return slices.DeleteFunc(slices.Clone(objects), func(o object) bool { return !slices.Contains(kinds, fmt.Sprint(o.body["kind"])) })
}

// referenceProblems finds what the API server accepts and what never works: selectors without pods, probes of ports
// that are not there, configuration that nobody makes, pods with more rights than a daemon needs.
func referenceProblems(objects []object) []string {
	var problems []string
	apps, names := map[string]bool{}, map[string]bool{}
	for _, o := range ofKind(objects, "Deployment", "Job") {
		apps[fmt.Sprint(at(o.body, "spec", "template", "metadata", "labels", "app.kubernetes.io/name"))] = true
		problems = append(problems, podProblems(o)...)
	}
	for _, o := range ofKind(objects, "ConfigMap") {
		names[fmt.Sprint(at(o.body, "metadata", "name"))] = true
	}
	for _, o := range ofKind(objects, "Service", "PodDisruptionBudget", "Deployment") {
		selector := at(o.body, "spec", "selector")
		if labels := at(selector, "matchLabels"); labels != nil {
			selector = labels
		}
		if app := fmt.Sprint(at(selector, "app.kubernetes.io/name")); !apps[app] {
			problems = append(problems, fmt.Sprintf("%s: %s selects %s, which no pod is", o.file, o.body["kind"], app))
		}
	}
	for _, o := range ofKind(objects, "Deployment", "Job") {
		if name := fmt.Sprint(at(o.body, "spec", "template", "spec", "containers", "envFrom", "configMapRef", "name")); !names[name] {
			problems = append(problems, fmt.Sprintf("%s: config map %s does not exist", o.file, name))
		}
	}
	return problems
}

func podProblems(o object) []string {
	var problems []string
	pod := at(o.body, "spec", "template", "spec")
	must := func(ok bool, what string) {
		if !ok {
			problems = append(problems, o.file+": "+what)
		}
	}
	must(at(pod, "securityContext", "runAsNonRoot") == true, "the pod may run as root")
	must(at(pod, "automountServiceAccountToken") == false, "the pod gets a token of the API server")
	must(at(pod, "containers", "securityContext", "readOnlyRootFilesystem") == true, "the root file system is writable")
	must(at(pod, "containers", "securityContext", "allowPrivilegeEscalation") == false, "privileges may grow")
	must(at(pod, "containers", "resources", "limits", "memory") != nil, "no memory limit")
	if o.body["kind"] != "Deployment" {
		return problems
	}
	port := at(pod, "containers", "ports", "name")
	for _, probe := range []string{"livenessProbe", "readinessProbe"} {
		must(port != nil && at(pod, "containers", probe, "httpGet", "port") == port, probe+" asks a port that the container does not name")
	}
	must(at(pod, "containers", "readinessProbe", "httpGet", "path") == "/readyz", "readiness is /readyz")
	must(at(pod, "containers", "livenessProbe", "httpGet", "path") == "/healthz", "liveness is /healthz: it must not depend on a broker")
	return problems
}

// kustomizeProblems compares the base's list of resources with the folder: a forgotten file is never applied.
func kustomizeProblems(t *testing.T, objects []object) []string {
	t.Helper()
	var problems []string
	for _, o := range ofKind(objects, "Kustomization") {
		listed, _ := o.body["resources"].([]any)
		dir := filepath.Dir(o.file)
		for _, r := range listed {
			if _, err := os.Stat(filepath.Join(dir, fmt.Sprint(r))); err != nil {
				problems = append(problems, fmt.Sprintf("%s: %v", o.file, err))
			}
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if base := filepath.Base(f); base != "kustomization.yaml" && !slices.Contains(listed, any(base)) {
				problems = append(problems, fmt.Sprintf("%s: %s is not listed", o.file, base))
			}
		}
	}
	if !strings.Contains(fmt.Sprint(objects), "hubstate-migrate") {
		problems = append(problems, "nothing migrates the schema")
	}
	return problems
}
