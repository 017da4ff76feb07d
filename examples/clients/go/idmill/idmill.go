// Package idmill draws ids over the Redis protocol, with go-redis: copy it into a service.
package idmill

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	tries        = 10 // 3 to 17 seconds in all, if no server is reachable
	pause        = 20 * time.Millisecond
	longestPause = 2 * time.Second
	// Longer than the server's --timeout (5 s), after which it returns TRYAGAIN.
	timeout = 7 * time.Second
)

// Prefixes of the errors that may not occur on another attempt or another server: the store is unreachable, its reply
// was lost, the server is shutting down, or the server is full. All others (EXHAUSTED, NOTFOUND, WRONGPASS, NOPERM, …)
// are permanent.
var transient = []string{"TRYAGAIN", "UNKNOWN", "CLOSED", "ERR max number of clients"}

// Ids draws from the first of several servers that answers. Share one in the whole process.
//
// A command whose reply was lost is sent again: ids are never handed out twice, so a lost id becomes a gap.
type Ids struct {
	Retries atomic.Int64
	at      atomic.Int64
	servers []*redis.Client
}

// Range is the ids from First to Last, both included.
type Range struct{ First, Last int64 }

// Connect takes the servers' URLs (rediss:// for TLS), and a token if they require one.
func Connect(urls []string, token string) (*Ids, error) {
	ids := &Ids{}
	for _, url := range urls {
		options, err := redis.ParseURL(url)
		if err != nil {
			return nil, err
		}
		options.Password = token
		options.DialTimeout = time.Second
		options.ReadTimeout = timeout
		options.ContextTimeoutEnabled = true
		// Retries of go-redis would be equally safe. They are disabled, since they would retry the same unreachable
		// server.
		options.MaxRetries = -1
		options.DialerRetries = 1
		ids.servers = append(ids.servers, redis.NewClient(options))
	}
	return ids, nil
}

// Next draws one id.
func (ids *Ids) Next(ctx context.Context, name string) (int64, error) {
	return ask(ctx, ids, func(server *redis.Client) (int64, error) { return server.Incr(ctx, name).Result() })
}

// Many draws n ids in one round trip, in increasing order. For more than some hundred, use Take.
func (ids *Ids) Many(ctx context.Context, name string, n int) ([]int64, error) {
	return ask(ctx, ids, func(server *redis.Client) ([]int64, error) {
		// Returns the first error. The ids of the other commands become a gap.
		answers, err := server.Pipelined(ctx, func(pipeline redis.Pipeliner) error {
			for range n {
				pipeline.Incr(ctx, name)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		drawn := make([]int64, len(answers))
		for at, answer := range answers {
			drawn[at] = answer.(*redis.IntCmd).Val()
		}
		return drawn, nil
	})
}

// Block draws n consecutive ids: the reply to INCRBY is the last of them.
func (ids *Ids) Block(ctx context.Context, name string, n int64) (Range, error) {
	return ask(ctx, ids, func(server *redis.Client) (Range, error) {
		last, err := server.IncrBy(ctx, name, n).Result()
		return Range{last - n + 1, last}, err
	})
}

// Take draws n ids in as few ranges as possible. Unlike Block, it skips no ids.
func (ids *Ids) Take(ctx context.Context, name string, n int64) ([]Range, error) {
	return ask(ctx, ids, func(server *redis.Client) ([]Range, error) {
		ends, err := server.Do(ctx, "IDMILL.TAKE", name, n).Int64Slice()
		var ranges []Range
		for ; len(ends) > 1; ends = ends[2:] {
			ranges = append(ranges, Range{ends[0], ends[1]})
		}
		return ranges, err
	})
}

// Server returns the index of the server in use.
func (ids *Ids) Server() int { return int(ids.at.Load()) }

// Close closes the connections.
func (ids *Ids) Close() {
	for _, server := range ids.servers {
		_ = server.Close()
	}
}

func ask[T any](ctx context.Context, ids *Ids, command func(*redis.Client) (T, error)) (T, error) {
	wait := pause
	for attempt := 1; ; attempt++ {
		at := ids.at.Load()
		answer, err := command(ids.servers[at])
		if err == nil || attempt == tries || ctx.Err() != nil || !IsTransient(err) {
			return answer, err
		}
		// Switch to the next server, unless another goroutine already did.
		ids.at.CompareAndSwap(at, (at+1)%int64(len(ids.servers)))
		ids.Retries.Add(1)
		// Random, so that clients do not all retry at the same time when a server is reachable again.
		select {
		case <-time.After(wait/2 + rand.N(wait/2)):
		case <-ctx.Done():
			return answer, ctx.Err()
		}
		wait = min(2*wait, longestPause)
	}
}

// IsTransient reports whether to retry. An error that the server did not send, such as a lost connection, is transient.
func IsTransient(err error) bool {
	var said redis.Error
	if !errors.As(err, &said) {
		return true
	}
	for _, code := range transient {
		if strings.HasPrefix(said.Error(), code) {
			return true
		}
	}
	return false
}

// Cache hands out ids from memory for bulk inserts, and draws them a block at a time. Goroutines may share one.
//
// Choose a Size that lasts for about one second: unused ids become a gap when the process ends, and are smaller than
// the ids that other processes draw in the meantime.
type Cache struct {
	Ids  *Ids
	Name string
	Size int64

	lock       sync.Mutex
	next, past int64
}

// Next returns one id.
func (cache *Cache) Next(ctx context.Context) (int64, error) {
	cache.lock.Lock()
	defer cache.lock.Unlock()
	if cache.next == cache.past {
		block, err := cache.Ids.Block(ctx, cache.Name, cache.Size)
		if err != nil {
			return 0, err
		}
		cache.next, cache.past = block.First, block.Last+1
	}
	cache.next++
	return cache.next - 1, nil
}
