// Command probe is the whole content of the images that the tests of package docker make.
package main

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	switch os.Args[1] {
	case "sleep": // until SIGTERM or SIGUSR1, by which it can be told apart
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGUSR1)
		fmt.Println("ready")
		if <-signals == syscall.SIGUSR1 {
			os.Exit(5)
		}
		os.Exit(4)
	case "stubborn": // until SIGKILL
		signal.Ignore(syscall.SIGTERM, syscall.SIGUSR1)
		fmt.Println("ready")
		for {
			time.Sleep(time.Hour)
		}
	case "exit": // exit <code> <lines>
		lines, _ := strconv.Atoi(os.Args[3])
		for i := range lines {
			fmt.Printf("out %d\n", i)
		}
		fmt.Fprintln(os.Stderr, "and that was the end")
		code, _ := strconv.Atoi(os.Args[2])
		os.Exit(code)
	case "shout": // many long lines
		for range 40 {
			fmt.Println(strings.Repeat("x", 4<<10))
		}
		fmt.Println("last words")
	case "eat": // until killed for lack of memory
		var eaten [][]byte
		for {
			b := make([]byte, 1<<20)
			for i := range b {
				b[i] = 1
			}
			eaten = append(eaten, b)
		}
	case "listen": // listen <port>
		l, err := net.Listen("tcp", ":"+os.Args[2])
		if err != nil {
			fail(err)
		}
		for {
			c, err := l.Accept()
			if err != nil {
				fail(err)
			}
			fmt.Fprintln(c, "hello")
			c.Close()
		}
	case "dial": // dial <host:port>, until it works or 10 s have gone
		var err error
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			var c net.Conn
			if c, err = net.DialTimeout("tcp", os.Args[2], time.Second); err == nil {
				c.Close()
				return
			}
		}
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
