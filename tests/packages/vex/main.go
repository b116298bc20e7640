// vex-parser FILE CVE PRODUCT SUBCOMPONENT   What a scanner that reads OpenVEX finds: status and justification, or nothing.
package main

import (
	"fmt"
	"os"

	"github.com/openvex/go-vex/pkg/vex"
)

func main() {
	doc, err := vex.Load(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, s := range doc.Statements {
		if err := s.Validate(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	for _, s := range doc.Matches(os.Args[2], os.Args[3], []string{os.Args[4]}) {
		fmt.Println(s.Status, s.Justification)
	}
}
