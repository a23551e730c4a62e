package ops

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// AddFlags adds one flag for each scalar field of dst, a pointer to a struct as Load takes it, and --config.
// database_url becomes --database-url; the usage is the field's `help` tag, the default is the field's value.
// A default is shown masked when it is a URL. A flag that fs already has is left alone.
func AddFlags(fs *pflag.FlagSet, dst any) {
	if fs.Lookup(configKey) == nil {
		fs.String(configKey, "", "YAML configuration file; HUBSTATE_* variables and flags win over it")
	}
	for _, f := range fieldsOf(dst) {
		if f.scalar && fs.Lookup(flagName(f.key)) == nil {
			addFlag(fs, f)
		}
	}
}

func addFlag(fs *pflag.FlagSet, f field) {
	name, usage := flagName(f.key), fmt.Sprintf("%s (%s%s)", f.help, envPrefix, strings.ToUpper(f.key))
	switch v := f.value.Interface().(type) {
	case time.Duration:
		fs.Duration(name, v, usage)
	case bool:
		fs.Bool(name, v, usage)
	case []string:
		fs.StringSlice(name, v, usage)
	default:
		addByKind(fs, f.value, name, usage)
	}
	if flag := fs.Lookup(name); flag != nil {
		flag.DefValue = Mask(flag.DefValue)
	}
}

func addByKind(fs *pflag.FlagSet, v reflect.Value, name, usage string) {
	switch {
	case v.CanInt():
		fs.Int64(name, v.Int(), usage)
	case v.CanUint():
		fs.Uint64(name, v.Uint(), usage)
	case v.CanFloat():
		fs.Float64(name, v.Float(), usage)
	default:
		fs.String(name, v.String(), usage)
	}
}

func flagName(key string) string { return strings.ReplaceAll(key, "_", "-") }

// field is one tagged field of a configuration struct; fields of embedded structs count as the outer one's.
type field struct {
	key, help string
	secret    bool
	scalar    bool
	value     reflect.Value
}

func fieldsOf(dst any) []field {
	v := reflect.ValueOf(dst)
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	return appendFields(nil, v)
}

func appendFields(list []field, v reflect.Value) []field {
	for i := range v.NumField() {
		sf := v.Type().Field(i)
		key, _, _ := strings.Cut(sf.Tag.Get("koanf"), ",")
		switch {
		case sf.Anonymous && sf.Type.Kind() == reflect.Struct:
			list = appendFields(list, v.Field(i))
		case key != "" && key != "-" && sf.IsExported():
			list = append(list, field{
				key: key, help: sf.Tag.Get("help"), secret: sf.Tag.Get("secret") == "true",
				scalar: isScalar(sf.Type), value: v.Field(i),
			})
		}
	}
	return list
}

func isScalar(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return true
	}
	return t == reflect.TypeFor[[]string]()
}
