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

/** Ids from idmill over HTTP, by the client of the JDK: copy this file into a service. Threads may share one. */
public final class IdsOverHttp {
    private static final int TRIES = 10;
    private static final int PAUSE = 20, LONGEST_PAUSE = 2000; // milliseconds
    // Beyond the server's --patience (5 s), after which it answers 503.
    private static final Duration PATIENCE = Duration.ofSeconds(7);

    /**
     * What the server said instead of ids, as RFC 9457 has it. {@code kind} tells errors apart (not_found, exhausted,
     * denied, …), and {@code outcome} what to do: transient and unknown may be tried again, at the cost of a gap at
     * most; permanent stays until somebody changes something.
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

    /** The servers, {@code http://…} or {@code https://…}; the token is null where they ask for none. */
    public IdsOverHttp(List<String> servers, String token) {
        this.servers = servers;
        this.token = token;
    }

    /** So many ids, from the first server that answers. */
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
                // Another server may have ids at hand: only after a round is it time to wait for this one.
                wait = problem != null && (attempt + 1) % servers.size() == 0 ? problem.retryAfter : 0;
            }
            Thread.sleep(wait);
            Ids.sleep(pause);
            pause = Math.min(2 * pause, LONGEST_PAUSE);
        }
    }

    private List<Long> post(URI url) throws IOException, InterruptedException {
        var request = HttpRequest.newBuilder(url).timeout(PATIENCE).POST(HttpRequest.BodyPublishers.noBody());
        if (token != null) {
            request.header("Authorization", "Bearer " + token);
        }
        var answer = client.send(request.build(), HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() != 200) {
            throw new Problem(answer);
        }
        JsonArray ids = JsonParser.parseString(answer.body()).getAsJsonObject().getAsJsonArray("ids");
        // Beyond 2^53 they are strings, for the sake of programs that would round them; this reads both.
        return StreamSupport.stream(ids.spliterator(), false).map(JsonElement::getAsLong).toList();
    }
}
