-- ARGV: nonce.
return { ARGV[1], 'server', run() }
