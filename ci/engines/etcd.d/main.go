// Command etcd runs etcd at the version in go.mod; `etcd etcdctl …` and `etcd etcdutl …` run these tools of
// etcd.
package main

import (
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/etcdctl/v3/ctlv3"
	"go.etcd.io/etcd/etcdutl/v3/etcdutl"
	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	called := ""
	if len(os.Args) > 1 {
		called = os.Args[1]
	}
	switch called {
	case "etcdctl":
		os.Args = os.Args[1:]
		ctlv3.MustStart()
	case "etcdutl":
		os.Args = os.Args[1:]
		snapshots()
	default:
		etcdmain.Main(os.Args)
	}
}

// snapshots runs etcdutl's snapshot commands: etcdutl's package main cannot be imported.
func snapshots() {
	tool := &cobra.Command{Use: "etcdutl"}
	tool.PersistentFlags().StringVarP(&etcdutl.OutputFormat, "write-out", "w", "simple", "how results are printed")
	tool.AddCommand(etcdutl.NewSnapshotCommand())
	if tool.Execute() != nil {
		os.Exit(1)
	}
}
