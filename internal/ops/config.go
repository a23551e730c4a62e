package ops

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

const (
	envPrefix = "HUBSTATE_"
	configKey = "config"
	delimiter = "."
	// unknownKeys is how mapstructure, which has no type for it, begins the error of keys that no field takes.
	unknownKeys = "has invalid keys: "
)

// Load fills dst, a pointer to a struct whose fields carry `koanf:"name"` tags and already hold their defaults.
// A flag that was given wins over HUBSTATE_NAME, that over the YAML file (--config or HUBSTATE_CONFIG), that over the
// default. An empty environment variable counts as not set. Fields that are not scalar are read from the file only.
//
// The error is a *ConfigError holding every problem found: an unknown key of the file, a value of the wrong type, a
// structured key in the environment. It names key and source, never a value. flags may be nil.
func Load(flags *pflag.FlagSet, dst any) error {
	return load(flags, dst, os.Environ)
}

// layers are the sources of one Load, kept apart so that an error can say where a value came from.
type layers struct {
	path                   string
	merged, env, flags     *koanf.Koanf
	problems               Problems
	scalars, structuredKey []string
}

func load(flags *pflag.FlagSet, dst any, environ func() []string) error {
	l := &layers{merged: koanf.New(delimiter), env: koanf.New(delimiter), flags: koanf.New(delimiter)}
	for _, f := range fieldsOf(dst) {
		if f.scalar {
			l.scalars = append(l.scalars, f.key)
			continue
		}
		l.structuredKey = append(l.structuredKey, f.key)
	}
	if err := l.readEnv(environ); err != nil {
		return err
	}
	if err := l.readFlags(flags); err != nil {
		return err
	}
	if err := l.readFile(flags); err != nil {
		return err
	}
	if err := errors.Join(l.merged.Merge(l.env), l.merged.Merge(l.flags)); err != nil {
		return fmt.Errorf("merge configuration: %w", err)
	}
	l.decode(dst)
	return l.problems.Err()
}

func (l *layers) readEnv(environ func() []string) error {
	transform := func(name, value string) (string, any) {
		key := strings.ToLower(strings.TrimPrefix(name, envPrefix))
		switch {
		case value == "":
			return "", nil
		case key == configKey:
			l.path = value
			return "", nil
		case slices.Contains(l.structuredKey, key):
			l.problems.Addf("%s: %s has structure and can be set in the configuration file only", name, key)
			return "", nil
		case slices.Contains(l.scalars, key):
			return key, value
		}
		return "", nil // another daemon's, or a test's
	}
	err := l.env.Load(env.Provider(delimiter, env.Opt{Prefix: envPrefix, TransformFunc: transform, EnvironFunc: environ}), nil)
	if err != nil {
		return fmt.Errorf("read environment: %w", err)
	}
	return nil
}

func (l *layers) readFlags(flags *pflag.FlagSet) error {
	if flags == nil {
		return nil
	}
	changed := func(f *pflag.Flag) (string, any) {
		key := strings.ReplaceAll(f.Name, "-", "_")
		if !f.Changed || !slices.Contains(l.scalars, key) {
			return "", nil
		}
		return key, posflag.FlagVal(flags, f)
	}
	if err := l.flags.Load(posflag.ProviderWithFlag(flags, delimiter, nil, changed), nil); err != nil {
		return fmt.Errorf("read flags: %w", err)
	}
	return nil
}

func (l *layers) readFile(flags *pflag.FlagSet) error {
	if flags != nil {
		if f := flags.Lookup(configKey); f != nil && f.Changed {
			l.path = f.Value.String()
		}
	}
	if l.path == "" {
		return nil
	}
	if err := l.merged.Load(file.Provider(l.path), yaml.Parser()); err != nil {
		l.problems.Addf("%s = %q: cannot be read as YAML: %v", configKey, l.path, err)
		return l.problems.Err()
	}
	if l.merged.Exists(configKey) {
		l.problems.Addf("%s: a configuration file cannot name another one", configKey)
		l.merged.Delete(configKey)
	}
	return nil
}

func (l *layers) decode(dst any) {
	err := l.merged.UnmarshalWithConf("", dst, koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{
		Result:           dst,
		TagName:          "koanf",
		Squash:           true,
		WeaklyTypedInput: true,
		ErrorUnused:      true,
		MatchName:        func(key, field string) bool { return key == field },
		DecodeHook: mapstructure.ComposeDecodeHookFunc(
			refuseBareDuration,
			mapstructure.StringToTimeDurationHookFunc(),
			trimmedList,
			mapstructure.TextUnmarshallerHookFunc(),
		),
	}})
	l.addDecodeErrors(err)
}

// addDecodeErrors reports the leaves of mapstructure's tree: joined errors inside wrappers inside joined errors.
func (l *layers) addDecodeErrors(err error) {
	switch e := err.(type) { //nolint:errorlint // this walks the tree itself: errors.As would skip to the first leaf
	case nil:
	case interface{ Unwrap() []error }:
		for _, child := range e.Unwrap() {
			l.addDecodeErrors(child)
		}
	case *mapstructure.DecodeError:
		l.addFieldError(e)
	default:
		if inner := errors.Unwrap(err); inner != nil {
			l.addDecodeErrors(inner)
			return
		}
		l.problems.Addf("%v", err)
	}
}

func (l *layers) addFieldError(e *mapstructure.DecodeError) {
	cause := e.Unwrap()
	var inner *mapstructure.DecodeError
	if errors.As(cause, &inner) {
		l.addDecodeErrors(cause)
		return
	}
	if keys, ok := strings.CutPrefix(cause.Error(), unknownKeys); ok {
		l.addUnknown(e.Name(), strings.Split(keys, ", "))
		return
	}
	l.problems.Addf("%s (from %s): %v", e.Name(), l.sourceOf(e.Name()), cause)
}

func (l *layers) addUnknown(parent string, keys []string) {
	if parent != "" {
		parent += delimiter
	}
	for _, key := range keys {
		l.problems.Addf("%s%s: unknown key in %s", parent, key, l.path)
	}
}

func (l *layers) sourceOf(key string) string {
	switch {
	case l.flags.Exists(key):
		return "flag --" + flagName(key)
	case l.env.Exists(key):
		return envPrefix + strings.ToUpper(key)
	}
	return l.path
}

// refuseBareDuration stops `timeout: 30` from meaning 30 nanoseconds.
func refuseBareDuration(from, to reflect.Type, data any) (any, error) {
	if to != reflect.TypeFor[time.Duration]() || from == to || from.Kind() == reflect.String {
		return data, nil
	}
	return nil, errors.New("a duration needs a unit, for example 30s")
}

// trimmedList reads "a, b" as [a b] and "" as an empty list.
func trimmedList(from, to reflect.Type, data any) (any, error) {
	if from.Kind() != reflect.String || to != reflect.TypeFor[[]string]() {
		return data, nil
	}
	list := []string{}
	for item := range strings.SplitSeq(reflect.ValueOf(data).String(), ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list, nil
}
