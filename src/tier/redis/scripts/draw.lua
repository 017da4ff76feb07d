-- ARGV: nonce, how many, ceiling, token, how long a claim lives in ms. As `tier::fenced::draw`.
local here = server()
if not here.master then
  return { ARGV[1], 'replica' }
end
local fence = here.run .. ':' .. here.replid
local held = redis.call('HMGET', KEYS[1], 'fence', 'token', 'base', 'used', 'len')
if held[1] == fence then
  if held[2] then
    return { ARGV[1], 'busy' }
  end
  -- Not more than 2^20, which doubles hold.
  local used, len = tonumber(held[4] or ''), tonumber(held[5] or '')
  if not (held[3] and used and len) then
    return { ARGV[1], 'foreign' }
  end
  if used < len then
    local first, last = plus(wide(held[3]), { 0, used }), wide(ARGV[3])
    if less(last, first) then
      return { ARGV[1], 'above' }
    end
    local take = math.min(tonumber(ARGV[2]), len - used)
    local past, most = plus(first, { 0, take }), plus(last, { 0, 1 })
    if less(most, past) then
      -- Both are at most `take` above the first.
      take = (most[1] - first[1]) * BASE + most[2] - first[2]
    end
    redis.call('HINCRBY', KEYS[1], 'used', string.format('%.0f', take))
    return { ARGV[1], 'ids', digits(first), string.format('%.0f', take) }
  end
elseif not held[1] and redis.call('EXISTS', KEYS[1]) == 1 then
  return { ARGV[1], 'foreign' }
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'fence', fence, 'token', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return { ARGV[1], 'claimed' }
