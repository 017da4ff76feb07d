-- ARGV: nonce, token, base, used, len, mark, how long it lives in ms. As `idmill_testing::fenced::install`.
local here = server()
local held = redis.call('HMGET', KEYS[1], 'fence', 'token', 'ahead')
local fence = run() .. ':' .. here.replid
if not here.master or held[1] ~= fence or (held[2] ~= ARGV[2] and held[3] ~= ARGV[2]) then
  return { ARGV[1], 'changed' }
end
if held[2] then
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], 'fence', fence, 'base', ARGV[3], 'used', ARGV[4], 'len', ARGV[5], 'mark', ARGV[6])
else
  redis.call('HSET', KEYS[1], 'nbase', ARGV[3], 'nlen', ARGV[5], 'nmark', ARGV[6])
  redis.call('HDEL', KEYS[1], 'ahead')
end
redis.call('PEXPIRE', KEYS[1], ARGV[7])
return { ARGV[1], 'done' }
