-- ARGV: nonce, how many, ceiling, token, how long a claim lives in ms. As `idmill_testing::fenced::draw`.
local here = server()
if not here.master then
  return { ARGV[1], 'replica' }
end
local fence = run() .. ':' .. here.replid
local fields = { 'fence', 'token', 'base', 'used', 'len', 'mark', 'ahead', 'nbase', 'nlen', 'nmark' }
local held = redis.call('HMGET', KEYS[1], unpack(fields))
if held[1] == fence then
  if held[2] then
    return { ARGV[1], 'busy' }
  end
  -- `used` and `len` are at most 2^20, so a double holds them exactly; a mark is at most twice that.
  local base, used, len = held[3], tonumber(held[4] or ''), tonumber(held[5] or '')
  local mark, ahead, following = tonumber(held[6] or '0'), held[7], tonumber(held[9] or '0')
  if not (base and used and len and mark and following) then
    return { ARGV[1], 'foreign' }
  end
  if used >= len and following > 0 then
    base, used, len, mark, ahead, following = held[8], 0, following, tonumber(held[10] or '0'), false, 0
    redis.call('HSET', KEYS[1], 'base', base, 'used', 0, 'len', held[9], 'mark', held[10] or '0')
    redis.call('HDEL', KEYS[1], 'ahead', 'nbase', 'nlen', 'nmark')
  end
  if used < len then
    local first, last = plus(wide(base), { 0, used }), wide(ARGV[3])
    if less(last, first) then
      return { ARGV[1], 'above' }
    end
    local take = math.min(tonumber(ARGV[2]), len - used)
    local past, most = plus(first, { 0, take }), plus(last, { 0, 1 })
    if less(most, past) then
      -- The result is below `take`: a double holds it exactly.
      take = (most[1] - first[1]) * BASE + most[2] - first[2]
    end
    redis.call('HINCRBY', KEYS[1], 'used', string.format('%.0f', take))
    local left, low = len - used - take + following, '0'
    if following == 0 and not ahead and mark > 0 and left <= mark then
      redis.call('HSET', KEYS[1], 'ahead', ARGV[4])
      low = '1'
    end
    return { ARGV[1], 'ids', digits(first), string.format('%.0f', take), base, string.format('%.0f', left), low }
  end
  if ahead then
    -- The process that prepares the next range may be gone: the key expires as soon as a claim would.
    if redis.call('PTTL', KEYS[1]) > tonumber(ARGV[5]) then
      redis.call('PEXPIRE', KEYS[1], ARGV[5])
    end
    return { ARGV[1], 'busy' }
  end
elseif not held[1] and redis.call('EXISTS', KEYS[1]) == 1 then
  return { ARGV[1], 'foreign' }
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'fence', fence, 'token', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return { ARGV[1], 'claimed' }
