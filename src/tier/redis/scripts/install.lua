-- ARGV: nonce, token, base, used, len, how long it lives in ms. As `tier::fenced::install`.
local here = server()
local held = redis.call('HMGET', KEYS[1], 'fence', 'token')
local fence = here.run .. ':' .. here.replid
if not here.master or held[1] ~= fence or held[2] ~= ARGV[2] then
  return { ARGV[1], 'changed' }
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'fence', fence, 'base', ARGV[3], 'used', ARGV[4], 'len', ARGV[5])
redis.call('PEXPIRE', KEYS[1], ARGV[6])
return { ARGV[1], 'done' }
