import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonSyntaxException;
import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.stream.StreamSupport;

/** Ids from idmill over HTTP, with the client of the JDK: copy this file into a service. Threads may share one. */
public final class IdsOverHttp {
    private static final int TRIES = 10;
    private static final int PAUSE = 20, LONGEST_PAUSE = 2000; // milliseconds
    // Longer than the server's --timeout (5 s), after which it returns 503.
    private static final Duration TIMEOUT = Duration.ofSeconds(7);

    /**
     * An error of the server, in the format of RFC 9457. {@code kind} is the kind of error (not_found, exhausted,
     * denied, …). {@code outcome} decides whether to retry: you may retry transient and unknown, which costs a gap at
     * most; permanent errors stay until their cause is removed.
     */
    public static final class Problem extends IOException {
        public final String kind, outcome;
        private final int retryAfter;

        Problem(HttpResponse<String> answer) {
            this(answer, parsed(answer.body()));
        }

        private Problem(HttpResponse<String> answer, JsonObject said) {
            super(text(said, "kind", "unknown") + ": " + text(said, "detail", "status " + answer.statusCode()));
            kind = text(said, "kind", "unknown");
            boolean passes = answer.statusCode() == 429 || answer.statusCode() >= 502;
            outcome = text(said, "outcome", passes ? "transient" : "permanent");
            retryAfter = (int) (1000 * answer.headers().firstValueAsLong("Retry-After").orElse(0));
        }

        private static JsonObject parsed(String body) {
            try {
                return JsonParser.parseString(body).getAsJsonObject();
            } catch (JsonSyntaxException | IllegalStateException ofAProxyInBetween) {
                return new JsonObject();
            }
        }

        private static String text(JsonObject said, String key, String otherwise) {
            return said.has(key) ? said.get(key).getAsString() : otherwise;
        }
    }

    private final HttpClient client = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(1)).build();
    private final List<String> servers;
    private final String token;

    /** Takes servers ({@code http://…} or {@code https://…}), and a token, or null if they require none. */
    public IdsOverHttp(List<String> servers, String token) {
        this.servers = servers;
        this.token = token;
    }

    /** Draws {@code n} ids from the first server that answers. */
    public List<Long> draw(String name, int n) throws IOException, InterruptedException {
        // A path has %20 where a form has +.
        var encoded = URLEncoder.encode(name, StandardCharsets.UTF_8).replace("+", "%20");
        var path = "/v1/sequences/" + encoded + "/ids?n=" + n;
        int pause = PAUSE;
        for (int attempt = 0; ; attempt++) {
            int wait = 0;
            try {
                return post(URI.create(servers.get(attempt % servers.size()) + path));
            } catch (IOException error) {
                var problem = error instanceof Problem said ? said : null;
                if (attempt == TRIES - 1 || problem != null && problem.outcome.equals("permanent")) {
                    throw error;
                }
                // Retry-After applies only after a round: another server may have ids in memory.
                wait = problem != null && (attempt + 1) % servers.size() == 0 ? problem.retryAfter : 0;
            }
            Thread.sleep(wait);
            Ids.sleep(pause);
            pause = Math.min(2 * pause, LONGEST_PAUSE);
        }
    }

    private List<Long> post(URI url) throws IOException, InterruptedException {
        var request = HttpRequest.newBuilder(url).timeout(TIMEOUT).POST(HttpRequest.BodyPublishers.noBody());
        if (token != null) {
            request.header("Authorization", "Bearer " + token);
        }
        var answer = client.send(request.build(), HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() != 200) {
            throw new Problem(answer);
        }
        JsonArray ids = JsonParser.parseString(answer.body()).getAsJsonObject().getAsJsonArray("ids");
        // Ids beyond 2^53 are strings, since some programs would round numbers; this reads both.
        return StreamSupport.stream(ids.spliterator(), false).map(JsonElement::getAsLong).toList();
    }
}
