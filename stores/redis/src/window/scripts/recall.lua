-- ARGV: nonce. Whatever it is, range or claim: to everybody else it has expired.
redis.call('DEL', KEYS[1])
return { ARGV[1], 'done' }
