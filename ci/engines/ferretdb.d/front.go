package main

import (
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"sync"
)

// front runs one command at a time. So commands are atomic, as MongoDB's commands on one document are.
// FerretDB's findAndModify reads and then writes without a transaction, so two in parallel can read the same
// value.
//
// A command that has arrived whole is run to its end, whether its client is still there or not.
type front struct {
	upstream string
	one      sync.Mutex
}

// From the wire protocol. Each message begins with its length, two ids and its kind.
const (
	headerLength = 16
	longest      = 48_000_000 // MongoDB's limit, too
	opMsg        = 2013
	moreToCome   = 1 << 1
)

func (f *front) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			slog.Error("the front ends", "error", err)
			return
		}
		go f.connection(client)
	}
}

// connection forwards one client's messages over a separate connection to FerretDB, until either side ends.
func (f *front) connection(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", f.upstream)
	if err != nil {
		slog.Error("FerretDB cannot be reached", "error", err)
		return
	}
	defer server.Close()
	for {
		request, err := readMessage(client)
		if err != nil {
			return
		}
		reply, err := f.run(server, request)
		if err != nil {
			return
		}
		// Outside the lock: a client that does not read its replies must not block other clients.
		if _, err := client.Write(reply); err != nil {
			return
		}
	}
}

// run executes one command; the reply is empty if the message requests no reply.
func (f *front) run(server net.Conn, request []byte) ([]byte, error) {
	f.one.Lock()
	defer f.one.Unlock()
	if _, err := server.Write(request); err != nil || !wantsReply(request) {
		return nil, err
	}
	return readMessage(server)
}

func wantsReply(message []byte) bool {
	if binary.LittleEndian.Uint32(message[12:]) != opMsg || len(message) < headerLength+4 {
		return true
	}
	return binary.LittleEndian.Uint32(message[headerLength:])&moreToCome == 0
}

func readMessage(from io.Reader) ([]byte, error) {
	var header [headerLength]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		return nil, err
	}
	length := binary.LittleEndian.Uint32(header[:])
	if length < headerLength || length > longest {
		return nil, io.ErrUnexpectedEOF
	}
	message := make([]byte, length)
	copy(message, header[:])
	_, err := io.ReadFull(from, message[headerLength:])
	return message, err
}
