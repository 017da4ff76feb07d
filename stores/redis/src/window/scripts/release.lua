-- ARGV: nonce, token. As `idmill_testing::fenced::release`.
local held = redis.call('HMGET', KEYS[1], 'token', 'ahead')
if held[1] == ARGV[2] then
  redis.call('DEL', KEYS[1])
elseif held[2] == ARGV[2] then
  redis.call('HDEL', KEYS[1], 'ahead')
else
  return { ARGV[1], 'changed' }
end
return { ARGV[1], 'done' }
