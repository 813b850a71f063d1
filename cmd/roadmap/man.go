package main

import (
	"io"

	docs "github.com/urfave/cli-docs/v3"
	"github.com/urfave/cli/v3"
)

func init() { register(manVerb) }

func manVerb() *cli.Command {
	return &cli.Command{
		Name:  "man",
		Usage: "print the manual page",
		Description: "Prints the manual page of the program, in troff.\n\n" +
			"Examples:\n  roadmap man | man -l -\n  roadmap man > ~/.local/share/man/man1/roadmap.1",
		Action: action(man),
	}
}

func man(c *call) error {
	if _, err := positional(c, 0, 0); err != nil {
		return err
	}
	page, err := docs.ToManWithSection(c.Root(), 1)
	if err != nil {
		return err
	}
	_, err = io.WriteString(c.Root().Writer, page)
	return err
}
