// Command idmill-ferretdb is the MongoDB server of the tests: FerretDB, embedded, over SQLite, behind a proxy
// that runs one command at a time (front.go has the reason).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"github.com/FerretDB/FerretDB/ferretdb"
)

const module = "github.com/FerretDB/FerretDB"

func main() {
	data := flag.String("data", "", "directory for the databases; created if it is missing")
	listen := flag.String("listen", "127.0.0.1:27017", "address of the serialising front")
	version := flag.Bool("version", false, "print the version of FerretDB and exit")
	flag.Parse()

	if *version {
		fmt.Println("FerretDB", ferretVersion(), "over SQLite, one command at a time")
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := serve(ctx, *data, *listen); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, data, listen string) error {
	ferret, err := embed(data)
	if err != nil {
		return err
	}
	upstream, err := url.Parse(ferret.MongoDBURI())
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	front := &front{upstream: upstream.Host}
	go front.serve(listener)
	fmt.Println("listening on", listener.Addr())
	return ferret.Run(ctx)
}

// embed creates a FerretDB that keeps its databases in a directory. It listens on a free port, for the front only.
func embed(data string) (*ferretdb.FerretDB, error) {
	if data == "" {
		return nil, errors.New("-data names the directory for the databases")
	}
	directory, err := filepath.Abs(data)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, err
	}
	// FerretDB requires the slash at the end.
	store := url.URL{Scheme: "file", OmitHost: true, Path: directory + "/"}
	return ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: "127.0.0.1:0"},
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Handler:   "sqlite",
		SQLiteURL: store.String(),
	})
}

func ferretVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == module {
				return dependency.Version
			}
		}
	}
	return "of an unknown version"
}
