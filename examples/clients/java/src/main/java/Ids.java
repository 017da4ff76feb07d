import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import java.util.stream.Stream;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.Response;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.util.JedisURIHelper;

/**
 * Ids from idmill over the Redis protocol, with jedis: copy this file into a service.
 *
 * <p>Draws from the first of several servers that answers. Threads may share one.
 *
 * <p>A command whose reply was lost is sent again: ids are never handed out twice, so a lost id becomes a gap. A
 * {@code RedisClient} of jedis does not retry commands by itself.
 */
public final class Ids implements AutoCloseable {
    /** The ids from first to last, both included. */
    public record Range(long first, long last) {}

    /**
     * Prefixes of the errors that may not occur on another attempt or another server: the store is unreachable, its
     * reply was lost, the server is shutting down, or the server is full. All others (EXHAUSTED, NOTFOUND, WRONGPASS,
     * NOPERM, …) are permanent.
     */
    private static final List<String> TRANSIENT = List.of("TRYAGAIN", "UNKNOWN", "CLOSED", "ERR max number of clients");

    private static final int TRIES = 10; // 3 to 17 seconds in all, if no server is reachable
    private static final int PAUSE = 20, LONGEST_PAUSE = 2000; // milliseconds
    private static final int TIMEOUT = 7000; // longer than the server's --timeout (5 s)

    final AtomicInteger retries = new AtomicInteger();
    private final AtomicInteger at = new AtomicInteger();
    private final List<RedisClient> servers;

    /** Takes the servers' URLs ({@code rediss://} for TLS), and a token, or null if they require none. */
    public Ids(List<String> urls, String token) {
        servers = urls.stream().map(url -> connect(URI.create(url), token)).toList();
    }

    private static RedisClient connect(URI url, String token) {
        var config = DefaultJedisClientConfig.builder(url)
                .password(token)
                .connectionTimeoutMillis(1000)
                .socketTimeoutMillis(TIMEOUT)
                .build();
        var pool = new ConnectionPoolConfig();
        pool.setMaxTotal(8);
        return RedisClient.builder()
                .hostAndPort(JedisURIHelper.getHostAndPort(url))
                .clientConfig(config)
                .poolConfig(pool)
                .build();
    }

    /** Draws one id. */
    public long next(String name) {
        return ask(server -> server.incr(name));
    }

    /** Draws ids in one round trip, in increasing order. For more than some hundred, use {@link #take}. */
    public List<Long> many(String name, int n) {
        return ask(server -> {
            try (var pipeline = server.pipelined()) {
                var answers = Stream.generate(() -> pipeline.incr(name)).limit(n).toList();
                pipeline.sync();
                // Throws the first error. The ids of the other commands become a gap.
                return answers.stream().map(Response::get).toList();
            }
        });
    }

    /** Draws consecutive ids: the reply to INCRBY is the last of them. */
    public Range block(String name, long n) {
        long last = ask(server -> server.incrBy(name, n));
        return new Range(last - n + 1, last);
    }

    /** Draws ids in as few ranges as possible. Unlike {@link #block}, it skips no ids. */
    public List<Range> take(String name, long n) {
        var ends = (List<?>) ask(server -> server.sendCommand(() -> "IDMILL.TAKE".getBytes(), name, Long.toString(n)));
        var ranges = new ArrayList<Range>();
        for (int i = 0; i < ends.size(); i += 2) {
            ranges.add(new Range((Long) ends.get(i), (Long) ends.get(i + 1)));
        }
        return ranges;
    }

    /** The index of the server in use. */
    public int server() {
        return at.get();
    }

    private <T> T ask(Function<RedisClient, T> command) {
        int pause = PAUSE;
        for (int attempt = 1; ; attempt++) {
            int asked = at.get();
            try {
                return command.apply(servers.get(asked));
            } catch (JedisException error) {
                if (attempt == TRIES || !isTransient(error)) {
                    throw error;
                }
            }
            // Switch to the next server, unless another thread already did.
            at.compareAndSet(asked, (asked + 1) % servers.size());
            retries.incrementAndGet();
            sleep(pause);
            pause = Math.min(2 * pause, LONGEST_PAUSE);
        }
    }

    /** Whether to retry. An error that the server did not send, such as a lost connection, is transient. */
    public static boolean isTransient(JedisException error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof JedisDataException) {
                return TRANSIENT.stream().anyMatch(cause.getMessage()::startsWith);
            }
        }
        return true;
    }

    /** Random, so that clients do not all retry at the same time when a server is reachable again. */
    static void sleep(int pause) {
        try {
            Thread.sleep(ThreadLocalRandom.current().nextInt(pause / 2, pause + 1));
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new JedisException("interrupted while waiting for a server", interrupted);
        }
    }

    @Override
    public void close() {
        servers.forEach(RedisClient::close);
    }

    /**
     * Ids for bulk inserts: drawn a block at a time, handed out from memory. Threads may share one.
     *
     * <p>Choose a size that lasts for about one second: unused ids become a gap when the process ends, and are smaller
     * than the ids that other processes draw in the meantime.
     */
    public static final class Block {
        private final Ids ids;
        private final String name;
        private final long size;
        private long next, past;

        public Block(Ids ids, String name, long size) {
            this.ids = ids;
            this.name = name;
            this.size = size;
        }

        public synchronized long next() {
            if (next == past) {
                var block = ids.block(name, size);
                next = block.first();
                past = block.last() + 1;
            }
            return next++;
        }
    }
}
