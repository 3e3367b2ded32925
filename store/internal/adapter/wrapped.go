package adapter

import "reflect"

// maxWrappers limits how many wrappers Wrapped looks into, in case one embeds itself.
const maxWrappers = 16

// Wrapped returns the client that client embeds, if client is a struct that wraps another
// client, for example to instrument it. It also looks into wrappers of wrappers. If there
// is no wrapper, it returns client. If a wrapper embeds a nil client, it returns the nil
// client.
//
// T is the interface that client and the embedded client have. What Wrapped returns says
// which client it is. Calls belong to client, because the wrapper may add something to
// them.
func Wrapped[T any](client T) T {
	for range maxWrappers {
		inner, ok := embedded[T](reflect.ValueOf(client))
		if !ok {
			break
		}
		client = inner
	}
	return client
}

// embedded returns the client that wrapper, a struct or a pointer to one, embeds.
func embedded[T any](wrapper reflect.Value) (client T, ok bool) {
	v := reflect.Indirect(wrapper)
	if v.Kind() != reflect.Struct {
		return client, false
	}
	for i := range v.NumField() {
		field, f := v.Type().Field(i), v.Field(i)
		switch {
		case !field.Anonymous:
			continue
		case !field.IsExported(): // its own fields can be exported
			client, ok = embedded[T](f)
		default:
			client, ok = f.Interface().(T)
			ok = ok || field.Type.Implements(reflect.TypeFor[T]())
			if !ok && f.CanAddr() {
				client, ok = f.Addr().Interface().(T)
			}
		}
		if ok {
			return client, true
		}
	}
	return client, false
}

// Nil reports whether client is nil, or a nil pointer.
func Nil(client any) bool {
	v := reflect.ValueOf(client)
	return client == nil || v.Kind() == reflect.Pointer && v.IsNil()
}
