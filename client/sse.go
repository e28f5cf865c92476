package client

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// serverEvent is one server-sent event.
type serverEvent struct {
	id, name string
	data     []byte
}

// readEvents calls each for every event until the stream ends (nil), breaks, or each gives an error; io.EOF from each
// ends it without one.
func readEvents(r io.Reader, each func(serverEvent) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), answerLimit)
	e := serverEvent{name: "message"}
	for lines.Scan() {
		line := strings.TrimSuffix(lines.Text(), "\r")
		if line != "" {
			e.field(line)
			continue
		}
		if len(e.data) > 0 {
			if err := each(e); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
		}
		e = serverEvent{name: "message"}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the event stream: %w", err)
	}
	return nil
}

// field takes one line of an event; comments (keep-alive) and unknown fields are dropped.
func (e *serverEvent) field(line string) {
	name, value, _ := strings.Cut(line, ":")
	value = strings.TrimPrefix(value, " ")
	switch name {
	case "id":
		e.id = value
	case "event":
		e.name = value
	case "data":
		if len(e.data) > 0 {
			e.data = append(e.data, '\n')
		}
		e.data = bytes.Join([][]byte{e.data, []byte(value)}, nil)
	}
}
