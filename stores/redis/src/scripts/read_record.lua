-- ARGV: nonce.
local kept = load()
if not kept then
  return { ARGV[1], 'missing' }
elseif kept == 'foreign' then
  return { ARGV[1], 'foreign' }
end
return { ARGV[1], 'record', kept.record }
