-- ARGV: nonce. Returns whether a reserve is refused because another server wrote the sequence. Reads only.
local here, sequence = server(), load()
if type(sequence) == 'table' and refusal(sequence, here, 'refuse') == 'promoted' then
  return { ARGV[1], 'promoted', sequence.replid, here.replid }
end
return { ARGV[1], 'here' }
