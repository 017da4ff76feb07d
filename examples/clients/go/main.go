// Draws ids from the command line; see ../README.md.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"example/idmill/idmill"
)

func words(variable, otherwise string) []string {
	if value := os.Getenv(variable); value != "" {
		otherwise = value
	}
	return strings.Split(otherwise, ",")
}

// Draws in every way for some seconds, and prints each range with the server that it came from.
func record(ctx context.Context, ids *idmill.Ids, name string, seconds int64) error {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	note := func(first, last int64) { fmt.Fprintln(out, ids.Server(), first, last) }
	cache := &idmill.Cache{Ids: ids, Name: name, Size: 20}
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end); {
		id, err := ids.Next(ctx, name)
		if err != nil {
			return err
		}
		note(id, id)
		ranges, err := ids.Take(ctx, name, 30)
		if err != nil {
			return err
		}
		for _, taken := range ranges {
			note(taken.First, taken.Last)
		}
		block, err := ids.Block(ctx, name, 10)
		if err != nil {
			return err
		}
		note(block.First, block.Last)
		many, err := ids.Many(ctx, name, 10)
		if err != nil {
			return err
		}
		for _, id := range many {
			note(id, id)
		}
		for range 25 {
			id, err := cache.Next(ctx)
			if err != nil {
				return err
			}
			fmt.Fprintln(out, "block", id, id)
		}
	}
	fmt.Fprintln(os.Stderr, ids.Retries.Load(), "retries")
	return nil
}

// run prints the ids that the command line asks for.
func run(ctx context.Context, ids *idmill.Ids, token, what, name string, n int64) error {
	var ranges []idmill.Range
	var many []int64
	var err error
	switch what {
	case "next":
		var id int64
		id, err = ids.Next(ctx, name)
		many = []int64{id}
	case "many":
		many, err = ids.Many(ctx, name, int(n))
	case "block":
		var block idmill.Range
		block, err = ids.Block(ctx, name, n)
		ranges = []idmill.Range{block}
	case "take":
		ranges, err = ids.Take(ctx, name, n)
	case "http":
		server := &idmill.HTTP{Servers: words("IDMILL_HTTP", "http://localhost:7381"), Token: token}
		many, err = server.Draw(ctx, name, int(n))
	case "record":
		return record(ctx, ids, name, n)
	default:
		err = errors.New("usage: next|many|block|take|http|record NAME [N]")
	}
	if err != nil {
		return err
	}
	for _, drawn := range ranges {
		for id := drawn.First; id <= drawn.Last; id++ {
			many = append(many, id)
		}
	}
	for _, id := range many {
		fmt.Println(id)
	}
	return nil
}

func main() {
	token := os.Getenv("IDMILL_TOKEN")
	ids, err := idmill.Connect(words("IDMILL_SERVERS", "redis://localhost:7380"), token)
	if err == nil {
		defer ids.Close()
		args := append(os.Args[1:], []string{"next", "orders", "1"}[min(3, len(os.Args)-1):]...)
		n, _ := strconv.ParseInt(args[2], 10, 64)
		err = run(context.Background(), ids, token, args[0], args[1], n)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		var problem *idmill.Problem
		if errors.As(err, &problem) && problem.Outcome == "permanent" || problem == nil && !idmill.IsTransient(err) {
			os.Exit(1)
		}
		os.Exit(75) // EX_TEMPFAIL
	}
}
