// Starts kfake, franz-go's fake of Kafka.
//
//	kfake serve          prints host:port and serves until standard input ends
//	kfake serve PORT     serves on this port of loopback until SIGTERM
//	kfake COUNT REQUEST  starts it so many times in this process, sends each the request (hexadecimal), and prints the
//	                     milliseconds from the call to the answer, one a line
package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

func start(request []byte) (time.Duration, error) {
	began := time.Now()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		return 0, err
	}
	defer cluster.Close()
	connection, err := net.Dial("tcp", cluster.ListenAddrs()[0])
	if err != nil {
		return 0, err
	}
	defer connection.Close()
	if _, err = connection.Write(request); err != nil {
		return 0, err
	}
	// Size, correlation id, error code.
	if _, err = io.ReadFull(connection, make([]byte, 10)); err != nil {
		return 0, err
	}
	return time.Since(began), nil
}

func serve(options ...kfake.Opt) {
	cluster, err := kfake.NewCluster(append(options, kfake.NumBrokers(1))...)
	if err != nil {
		panic(err)
	}
	defer cluster.Close()
	fmt.Println(cluster.ListenAddrs()[0])
	if len(options) > 0 {
		select {}
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func serveOn(port string) {
	number, err := strconv.Atoi(port)
	if err != nil {
		panic(err)
	}
	serve(kfake.Ports(number))
}

func main() {
	if os.Args[1] == "serve" && len(os.Args) > 2 {
		serveOn(os.Args[2])
	}
	if os.Args[1] == "serve" {
		serve()
		return
	}
	runs, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	request, err := hex.DecodeString(os.Args[2])
	if err != nil {
		panic(err)
	}
	for range runs {
		took, err := start(request)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%.3f\n", float64(took.Microseconds())/1000)
	}
}
