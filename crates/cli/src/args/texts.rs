//! What follows the options in `--help`: examples and what they mean.

pub(super) const MAIN: &str = "\
Examples:
  idmill next orders              the next id of the sequence `orders`
  idmill next orders -n 1000      a thousand of them, one a line
  idmill list                     every sequence of the store
  idmill doctor                   what is wrong with them
  idmill decode --format base62 4C92
                                  the id that `next --format` wrote so
  idmill bench --store URL        what each mode costs there

What holds:
  unique    No id is printed twice: a range is durable in the store before an id of it is printed,
            and a reserve whose outcome is unknown is never used.
  ordered   Within one run ids grow. A run that begins after another ended prints larger ids.
  gaps      A run that is killed loses the ids it had reserved and not printed.

Exit codes:
  0    done; also where the reader of stdout closed it early, as `head` does
  1    failed for good: access denied, a broken store, a full disk behind stdout
  2    the command line or the URL cannot be right; nothing was changed
  3    the sequence is exhausted
  4    no such sequence, store or directory
  5    refused: it exists already or differs from what was asked for, or a guard held
  6, 7, 8    what `doctor` found: warnings, errors, something that could not be looked at
  75   try again later: the store is busy or away
  76   the outcome is unknown: it may have been done or not
  130, 143   interrupted by Ctrl-C; terminated";

pub(super) const SERVE: &str = "\
Examples:
  idmill serve                                    the sequences of ./idmill.db, to this machine
  idmill serve --store postgres://app@db1/shop    those of a database
  idmill serve --config /etc/idmill.toml --check  what the file would do
  redis-cli -p 7380 incr orders                   the next id
  curl -X POST localhost:7381/v1/sequences/orders/ids?n=3
                                                  three, in JSON
  idmill token shop --right draw --sequence 'orders' --sequence 'shop.*'
                                                  a token, for `--tokens FILE`

A sequence has to exist, by `idmill create` or over HTTP, unless the server is told to --create.";

pub(super) const NEXT: &str = "\
Examples:
  idmill next orders                          one id
  idmill next orders -n 1_000_000 > ids       a million
  idmill next users --max 2147483647          ids that fit a 32-bit column
  id=$(idmill next orders) || exit            in a script: stops unless there is an id
  idmill next users --format 'base62|prefix(u_)'    written in a format

Where the sequence ends early, the ids there were are printed and used, and the exit code is 3.
A script wants to look at the exit code before it counts on having COUNT lines.

A reader that closes the pipe early (`| head`) ends the command without an error; what was reserved
and not read, at most 100,000 ids or one --step, is a gap.";

pub(super) const CREATE: &str = "\
Examples:
  idmill create orders --start 1000           the first id is 1000
  idmill create users --max 2147483647        ids that fit a 32-bit column";

pub(super) const LIST: &str = "\
Columns:
  NEXT          the next id to be reserved; `-` where none is left
  START, MAX    the first and the last id, both handed out
  REMAINING     how many ids can still be reserved
  USED          the part of START to MAX that was reserved; ids that became gaps count
  INCARNATION   tells sequences of one name apart: another after `remove` and `create`
  EPOCH         how often it was set backwards

Looking at a sequence consumes nothing. A running process has reserved ahead of what it handed out.";

pub(super) const SET: &str = "\
Examples:
  idmill set orders --next 5000               skip ahead, say after an import brought ids of its own
  idmill set users --max 9223372036854775807  make room, after the column was widened
  idmill set tests --next 1 --backwards       begin again; see below

Forwards: processes that run hand out first what they have reserved before. None comes twice, but
they may be below the new value. A window in a cache is emptied.

Backwards: ids from the new value on were reserved before and will be handed out again. That is
right only where nobody kept those: in a test, or after the rows were deleted. The epoch is raised,
so that running processes drop the ids they hold when they next reserve; until then they hand those
out.";

pub(super) const REMOVE: &str = "\
Examples:
  idmill remove tests --yes
  idmill create tests --start 5001            its ids do not repeat those up to 5000

Processes that run go on with what they hold, and create the sequence anew when they next reserve.";

pub(super) const REVOKE: &str = "\
Examples:
  idmill revoke orders

Processes hear of it when they next reserve, or within their `freshness`, if they have one. What they drop is a gap.";

pub(super) const FORMATS: &str = "\
A format is codecs with `|` between them, applied from left to right:
  permute(key=KEY,bits=N)   hides order and amount. 31 bits fit an i32, 53 a number of JavaScript,
                            63 an i64; below=BOUND in place of bits for any other domain
  reverse(bits=N)           spreads ids that follow each other over the key space
  decimal, base62           digits; base62 is shortest, and case matters
  crockford                 base 32 for people: case and hyphens do not matter, 0 and O are the same
  crockford(check)          with a symbol that finds mistakes in typing
  pad(N)                    zeros in front, up to N symbols
  group(N)                  a hyphen between every N symbols; crockford alone
  prefix(TEXT), suffix(TEXT)

KEY is env:NAME (an environment variable), file:PATH, or the key itself, which other users of the
machine can then see. It cannot be changed: ids are read back with the key that wrote them alone.
Not encryption: it keeps people from counting, not from attacking.

Examples:
  export IDMILL_KEY=0x$(openssl rand -hex 16)     once, and kept
  format='permute(key=env:IDMILL_KEY,bits=31)|crockford(check)|pad(8)|group(4)|prefix(ORD-)'
  idmill next orders --max 2147483647 --format \"$format\"
  idmill encode --format \"$format\" 1 2 3
  idmill decode --format \"$format\" ORD-0KWB-N78M
  idmill decode --format base62 < texts           a text a line";

pub(super) const BENCH: &str = "\
Modes:
  in-transaction        one id in the transaction that uses it: gapless; not on every store
  in-transaction-many   --values ids in one transaction
  async                 each id reserved by itself, in a transaction of its own
  global                the same, but callers who wait share one: ids grow across processes
  batch                 --step ids at a time, fetched by whoever finds memory empty
  async-batch           --step ids at a time, fetched ahead when --watermark are left
  thread                the same, each thread from a stripe of its own

Examples:
  idmill bench --threads 1,10,50                      every mode, on a temporary SQLite file
  idmill bench --store sqlite:ids.db --duration 10s   where it really is
  idmill bench --mode async-batch --step 1000 --watermark 250 --transaction 0s
  idmill bench --json bench.json --plot bench.svg     to keep and to look at
  idmill bench --published --markdown                 beside figures that others published

How it measures:
  A thread takes an id, works for --transaction, and begins again. Timed is the whole: the
  transaction, for the modes inside of one; the id and the simulated work for the others. The
  percentiles are corrected for coordinated omission: one that took long stands for those that
  would have begun meanwhile, one every --transaction. The JSON has the times as they were, too.

  RESERVES counts round trips that took ids from the store, WAITED callers who found no id in
  memory, GAPS ids that were reserved and lost, LEFT ids still in memory at the end, RETRIES
  transactions begun again because the store was busy.

  --published measures what was published for sequences on Cloud Spanner: in-transaction, async,
  batch and async-batch by 10 and by 50 threads, in steps of 200 with a watermark of 50, 10 ms a
  transaction. Another machine makes other figures, so ratios are compared: X IN-TRANSACTION is a
  mode's values a second over those of in-transaction with as many threads, P99 / TRANSACTION the
  99th percentile over the 10 ms. By all that is known, the published percentiles are not
  corrected for coordinated omission.

The default store is an SQLite file in a temporary directory, deleted afterwards; $IDMILL_STORE is
not looked at. A store given by --store is left with the sequence `idmill-bench`. Measure on an
idle machine.";

pub(super) const DRAWS: &str = "\
Modes:
  handle   `Handle::try_next`: a view of the allocator for one thread
  shared   `Allocator::try_next` through one shared reference, as from a web server's state
  thread   the same under `Order::Thread`: each thread draws from a stripe of its own
  lease    `Lease::try_next`: --lease ids at a time that belong to one thread
  take     `Allocator::take_blocking`: --take ids in one call
  async    `Allocator::next().await`
  batch    `handle` without prefetching: whoever finds memory empty waits for the store
  global   `Order::Global`: each id costs a round trip to the store, shared by those who wait

Examples:
  idmill draws --threads 1,2
  idmill draws --mode handle,batch --step 100_000     what prefetching is worth

How it measures:
  NS/ID is the time of all threads over the ids they drew. X BARE sets it beside that of a bare
  `AtomicU64::fetch_add` on one counter, measured in the same run with as many threads.

  A clock takes some twenty times as long to read as an id to draw. So one draw in 4096 is timed by
  itself, less the time of reading the clock, and stands for the others; and every draw that waits
  for the store is timed, so that none of the long ones is missed. A draw of `take` is one call,
  and all of them are timed. A draw of a few nanoseconds is less than the clock can tell: for the
  mean see NS/ID, for the tail the percentiles.

  WAITED counts calls that found no id in memory, the first of all among them; GAPS ids that were
  reserved and lost; LEFT ids that were still in memory when the run ended.

The default store is an SQLite file in a temporary directory, deleted afterwards; $IDMILL_STORE is
not looked at. A store given by --store is left with the sequence `idmill-draws`. Measure on an
idle machine.";

pub(super) const CHECK: &str = "\
Examples:
  idmill check --store sqlite:ids.db --rate 500           sizes for 500 ids a second in each process
  idmill check --outage 1h --rate 20 --json               for a script

The exit code is 5 where an operation failed: the table says which and why. Nothing is left behind, unless
`remove` is what failed.";

pub(super) const DOCTOR: &str = "\
Findings:
  in_use         error    a column holds an id that is still to be handed out: it will repeat
  went_back      error    ids were claimed at the witness, or are in the window, that the store
                          has not reserved
  behind_reset   error    the witness knows of a reset that the store does not
  replaced       error    the witness knows another sequence of this name
  missing        error    the witness, or an option, names a sequence that the store does not have
  exhausted      error    no id is left
  unreadable     error    something is stored that no version of idmill writes
  loses_writes   error    the store forgets what it granted; with a witness, a warning
  refused        error    the store cannot be used: settings that lose writes, an ambiguous table;
                          or it refuses each reserve of a sequence, after a failover or a restore
  not_seen       error    something could not be looked at, and nothing is known of it
  ambiguous      warning  the database has another table of this name, in a schema off the search_path
  ends_soon      warning  no id is left within --ends-within
  too_narrow     warning  max is beyond what the type or the column holds; an error once next is
  incomplete     warning  a view or row-level security may hide the largest id of a column
  column_default warning  a column gives new rows ids of its own, by nextval or AUTO_INCREMENT
  pending        warning  a reset or removal was announced at the witness, and not confirmed by the
                          store; it permits nothing
  unguarded      warning  ids were reserved and not claimed, by a process without the guard or by a
                          `set`; info where nothing was ever claimed

Exit codes:
  0    sound, or info alone
  6    warnings
  7    errors: ids will repeat, or there are none
  8    something could not be looked at, and no error was found in the rest

Examples:
  idmill doctor --check 'orders=sqlite:shop.db?column=orders.id'
  idmill doctor --check 'orders=postgres://app@db1/shop?column=public.orders.id' --fix
  idmill doctor --rate-over 10s --ends-within 90d --type orders=i32
  idmill doctor --json | jq -r 'select(.severity == \"error\") | .command'
  idmill doctor --watch --metrics 127.0.0.1:9187

With --json, each line on stdout is a finding, with `kind`, `severity`, `sequence`, `asked`,
`found`, and the remedy as a `command` or as `advice`; `raises` says whether --fix carries it out.
--fix adds lines with `fixed`, --watch lines with `resolved`. Numbers stand within strings.";

pub(super) const PLAN: &str = "\
Examples:
  idmill plan --rate 500                                   one process, a store away for 5 minutes
  idmill plan --rate 2000 --processes 8 --bits 31          do 32-bit columns last?
  idmill plan --rate 500 --outage 1h --plot outage.svg     the stock through an hour without a store
  idmill plan --rate 500 --max-waste 10_000                what a cap on waste leaves of the outage
  idmill plan --rate 300 --datacenters 3 --isolation 24h   windows that outlive a day cut off

How it is worked out:
  budget      the outage, 2 % more, since rates are measured and not known, and up to 10 s until it is noticed
              that the store is back
  watermark   rate x (budget + 4 x latency), at most half of --max-waste: what remains when a refill starts
  step        what a refill reserves: at least the watermark, and at least 0.1 s or 20 latencies of ids
  waste       watermark + step, which is the most that a process has in memory: lost by a crash

`holds` says whether the outage is survived, simulated at its worst moment, when memory is at the watermark,
and whether the ids last for a year. The exit code is 5 where either is not so.";

pub(super) const EXPORT: &str = "\
Fields, all of them strings:
  format        the layout of the line: 1
  name          the sequence
  next          the next id to be reserved; null where none is left
  start, max    the first and the last id
  incarnation   which sequence of this name it was; `import` makes another
  epoch         how often it was set backwards; `import` begins at 0

Examples:
  idmill export > ids.jsonl                            every sequence
  idmill export --prefix shop- --output ids.jsonl      some, in a file that is never half written
  idmill export orders | jq -r .next                   one field
  idmill export --store sqlite:ids.db | idmill import --store postgres://app@db1/shop

A sequence may be drawn from meanwhile: its line is of the moment when it was read. Stop those who
draw before you move sequences elsewhere.";

pub(super) const IMPORT: &str = "\
Examples:
  idmill import ids.jsonl --dry-run                    what would be done
  idmill import ids.jsonl                              creates and raises
  idmill import ids.jsonl --keep-going                 also where lines cannot be read

A sequence that exists is raised to the next id of the file if it is behind that, and kept as it is
if not. One that is missing is created at the next id of the file, in one step, and is another
incarnation then. An import that is interrupted leaves no sequence between; run it again for the
rest. In Cassandra and behind a window, creating takes two steps, and only a forced end comes
between them: stop the processes that draw before.

With --json, each line on stdout is an object with `sequence`, `outcome` (created, raised or kept),
and the next id `before` and `after`, as strings.

The exit code is 5 where a sequence was refused, 2 where a line could not be read.";

pub(super) const SCHEMA: &str = "\
Examples:
  idmill schema --store postgres://app@db1/shop > migrations/0007_idmill.sql
  idmill schema --store 'mysql://app@db1/shop?table=ids' | mysql shop
  idmill schema --witness --guard postgres://app@db2/witness > migrations/0008_witness.sql";

pub(super) const COMPLETIONS: &str = "\
Examples:
  idmill completions bash > ~/.local/share/bash-completion/completions/idmill
  idmill completions zsh > ~/.zfunc/_idmill
  idmill completions fish > ~/.config/fish/completions/idmill.fish";
