-- ARGV: nonce. Returns one past the last id of the next range if it is installed, otherwise of the current one. Changes nothing.
local here = server()
if not here.master then
  return { ARGV[1], 'replica' }
end
local held = redis.call('HMGET', KEYS[1], 'fence', 'base', 'len', 'nbase', 'nlen')
if held[1] ~= run() .. ':' .. here.replid or not held[2] then
  return { ARGV[1], 'nothing' }
end
local base, len = held[4] or held[2], tonumber((held[4] and held[5] or held[3]) or '')
if not len then
  return { ARGV[1], 'foreign' }
end
return { ARGV[1], 'until', digits(plus(wide(base), { 0, len })) }
