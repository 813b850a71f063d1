// Package faulttest checks the errors that users see.
package faulttest

import (
	"strings"
	"testing"

	"roadmap/pkg/fault"
)

// Refused wants err to be an error of the input, on one line that says every
// one of parts.
func Refused(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error; want one that says %q", parts)
		return
	}
	if !fault.IsInput(err) {
		t.Errorf("%v is not an error of the input", err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %q", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}
