// Unpacks the CPython that the module has within it into a folder: a build of python-build-standalone.
package main

import (
	"log"
	"os"

	"github.com/kluctl/go-embed-python/python"
)

func main() {
	if _, err := python.NewEmbeddedPythonWithTmpDir(os.Args[1], false); err != nil {
		log.Fatal(err)
	}
}
