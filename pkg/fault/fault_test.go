package fault

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
)

func TestMarkSurvivesWrapping(t *testing.T) {
	marked := Inputf("list.csv:3: label %q is not a number", "x")
	cases := []struct {
		name string
		err  error
		want bool
	}{
		{"nil", nil, false},
		{"plain", errors.New("disk on fire"), false},
		{"marked", marked, true},
		{"wrapped", fmt.Errorf("train: %w", marked), true},
		{"wrapped twice", fmt.Errorf("a: %w", fmt.Errorf("b: %w", marked)), true},
		{"joined", errors.Join(errors.New("first"), marked), true},
		{"only the text is kept", errors.New(marked.Error()), false},
		{"plain around plain", fmt.Errorf("train: %w", fs.ErrNotExist), false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := IsInput(c.err); got != c.want {
				t.Errorf("IsInput(%v) = %v, want %v", c.err, got, c.want)
			}
		})
	}
}

func TestInputKeepsTextAndChain(t *testing.T) {
	if Input(nil) != nil {
		t.Error("Input(nil) is not nil")
	}
	cause := fmt.Errorf("open photos: %w", fs.ErrNotExist)
	err := Input(cause)
	if err.Error() != cause.Error() {
		t.Errorf("text became %q", err)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		t.Error("the cause is no longer found with errors.Is")
	}
	if !errors.Is(Inputf("data: %w", fs.ErrNotExist), fs.ErrNotExist) {
		t.Error("Inputf drops the error given to %w")
	}
}
