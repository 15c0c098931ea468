// Scenarios of Kafka clients written in Go, one action a process; ../README.md says what each action takes and prints.
//
//	PROGRAM CLIENT ACTION '{"bootstrap": "127.0.0.1:9092", "topic": "t"}'
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"sync"
)

// Settings of one action. Absent ones are the zero value of their type.
type settings struct {
	Bootstrap       string            `json:"bootstrap"`
	User            string            `json:"user"`
	Password        string            `json:"password"`
	Topic           string            `json:"topic"`
	Partitions      int32             `json:"partitions"`
	Config          map[string]string `json:"config"`
	Codec           string            `json:"codec"`
	Idempotent      bool              `json:"idempotent"`
	Committed       bool              `json:"committed"`
	Group           string            `json:"group"`
	TransactionalID string            `json:"transactional_id"`
	Source          string            `json:"source"`
	Count           int               `json:"count"`
	TimestampMs     int64             `json:"timestamp_ms"`
}

// A record on standard input or output; keys, values and headers are base64 in JSON, and null is null.
type record struct {
	Partition   int32    `json:"partition"`
	Offset      int64    `json:"offset"`
	TimestampMs int64    `json:"timestamp_ms"`
	Key         []byte   `json:"key"`
	Value       []byte   `json:"value"`
	Headers     []header `json:"headers"`
}

type header struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

type acknowledgement struct {
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
}

// A transaction on standard input.
type transaction struct {
	Records []record `json:"records"`
	Commit  bool     `json:"commit"`
}

// Requests of a client by the name of the action.
type actions map[string]func(settings) error

var clients = map[string]actions{
	"franz-go":  franz,
	"sarama":    saramaActions,
	"kafka-go":  segmentio,
	"watermill": watermillActions,
}

func main() {
	if len(os.Args) != 4 {
		fail(2, "usage: PROGRAM CLIENT ACTION SETTINGS")
	}
	action, known := clients[os.Args[1]][os.Args[2]]
	if !known {
		fail(2, fmt.Sprintf("%s has no action %s", os.Args[1], os.Args[2]))
	}
	var chosen settings
	if err := json.Unmarshal([]byte(os.Args[3]), &chosen); err != nil {
		fail(2, "settings: "+err.Error())
	}
	if err := action(chosen); err != nil {
		emit(map[string]any{"error": codeOf(err), "message": err.Error()})
		os.Exit(1)
	}
}

func fail(code int, text string) {
	fmt.Fprintln(os.Stderr, text)
	os.Exit(code)
}

// An error that carries Kafka's code.
type kafkaError struct {
	code int16
	err  error
}

func (e kafkaError) Error() string { return e.err.Error() }

// Code of Kafka's protocol in an error of any of the clients; nil for an error of the client's own.
func codeOf(err error) any {
	var coded kafkaError
	if errors.As(err, &coded) {
		return coded.code
	}
	for _, find := range []func(error) (int16, bool){franzCode, saramaCode, segmentioCode} {
		if code, found := find(err); found {
			return code
		}
	}
	return nil
}

var printing sync.Mutex

// Prints one line of JSON; any goroutine may call it.
func emit(value any) {
	printing.Lock()
	defer printing.Unlock()
	line, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(append(line, '\n'))
}

func lines() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		input := bufio.NewReader(os.Stdin)
		for {
			line, err := input.ReadBytes('\n')
			if err != nil || !yield(line[:len(line)-1]) {
				return
			}
		}
	}
}

// Batches of records on standard input; an empty line ends each.
func batches() iter.Seq[[]record] {
	return func(yield func([]record) bool) {
		var batch []record
		for line := range lines() {
			if len(line) > 0 {
				batch = append(batch, parse[record](line))
				continue
			}
			if !yield(batch) {
				return
			}
			batch = nil
		}
	}
}

func transactions() iter.Seq[transaction] {
	return func(yield func(transaction) bool) {
		for line := range lines() {
			if !yield(parse[transaction](line)) {
				return
			}
		}
	}
}

func parse[T any](line []byte) T {
	var found T
	if err := json.Unmarshal(line, &found); err != nil {
		fail(2, "standard input: "+err.Error())
	}
	return found
}

// Calls `end` when standard input is closed.
func whenInputEnds(end func()) {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		end()
	}()
}
