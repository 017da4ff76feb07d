-- ARGV: nonce, token. As `tier::fenced::release`.
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[2] then
  return { ARGV[1], 'changed' }
end
redis.call('DEL', KEYS[1])
return { ARGV[1], 'done' }
