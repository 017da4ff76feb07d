-- ARGV: nonce.
local sequence = load()
if not sequence then
  return { ARGV[1], 'missing' }
elseif sequence == 'foreign' then
  return { ARGV[1], 'foreign' }
end
return answer('sequence', sequence)
