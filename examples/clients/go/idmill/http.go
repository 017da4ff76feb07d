package idmill

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Problem is an error of the server over HTTP, in the format of RFC 9457.
type Problem struct {
	Status int
	// The kind of error: not_found, exhausted, denied, …
	Kind   string `json:"kind"`
	Detail string `json:"detail"`
	// Whether to retry. You may retry transient and unknown, which costs a gap at most; permanent errors stay until
	// their cause is removed.
	Outcome    string `json:"outcome"`
	RetryAfter time.Duration
}

func (problem *Problem) Error() string { return fmt.Sprintf("%s: %s", problem.Kind, problem.Detail) }

// HTTP draws from the first of several servers that answers.
type HTTP struct {
	Servers []string // http://… or https://…
	Token   string
	Client  http.Client
}

// Draw draws n ids.
func (server *HTTP) Draw(ctx context.Context, name string, n int) ([]int64, error) {
	path := fmt.Sprintf("/v1/sequences/%s/ids?n=%d", url.PathEscape(name), n)
	wait := pause
	for attempt := 0; ; attempt++ {
		ids, err := server.post(ctx, server.Servers[attempt%len(server.Servers)]+path)
		var problem *Problem
		said := errors.As(err, &problem)
		if err == nil || attempt == tries-1 || ctx.Err() != nil || said && problem.Outcome == "permanent" {
			return ids, err
		}
		// Random, so that clients do not all retry at the same time when a server is reachable again.
		rest := wait/2 + rand.N(wait/2)
		// Retry-After applies only after a round: another server may have ids in memory.
		if said && (attempt+1)%len(server.Servers) == 0 {
			rest += problem.RetryAfter
		}
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		wait = min(2*wait, longestPause)
	}
}

func (server *HTTP) post(ctx context.Context, url string) ([]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return nil, err
	}
	if server.Token != "" {
		request.Header.Set("Authorization", "Bearer "+server.Token)
	}
	response, err := server.Client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, problemOf(response)
	}
	var drawn struct{ Ids []id }
	if err := json.NewDecoder(response.Body).Decode(&drawn); err != nil {
		return nil, err
	}
	ids := make([]int64, len(drawn.Ids))
	for at, id := range drawn.Ids {
		ids[at] = int64(id)
	}
	return ids, nil
}

// id is a number in JSON, or a string beyond 2^53, since some programs would round a number.
type id int64

func (id_ *id) UnmarshalJSON(text []byte) error {
	number, err := strconv.ParseInt(string(bytes.Trim(text, `"`)), 10, 64)
	*id_ = id(number)
	return err
}

func problemOf(response *http.Response) *Problem {
	problem := &Problem{Status: response.StatusCode, Kind: "unknown", Detail: response.Status, Outcome: "permanent"}
	if response.StatusCode >= http.StatusBadGateway || response.StatusCode == http.StatusTooManyRequests {
		problem.Outcome = "transient" // perhaps from a proxy
	}
	_ = json.NewDecoder(response.Body).Decode(problem)
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	problem.RetryAfter = time.Duration(seconds) * time.Second
	return problem
}
