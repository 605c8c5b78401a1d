package main

import (
	"fmt"
	"os"
	"strings"
)

func main() {
	fmt.Println(strings.Join(append([]string{"hello from go"}, os.Args[1:]...), " "))
}
