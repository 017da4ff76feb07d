-- ARGV: nonce. Removes the range or claim. For other processes, this is the same as its expiry.
redis.call('DEL', KEYS[1])
return { ARGV[1], 'done' }
