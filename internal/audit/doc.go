// Package audit holds the record of what happened and the proof that the record was not changed.
//
// An Entry is one record. Its leaf is one line of JSON, always the same bytes for the same entry (Marshal). The leaves, in
// order, are the leaves of a Merkle tree as in RFC 6962: the hash of a leaf is SHA-256(0x00 || leaf), of a node
// SHA-256(0x01 || left || right). The tree is kept as tiles of 256 hashes (C2SP tlog-tiles) and signed as a checkpoint (C2SP
// tlog-checkpoint, a signed note):
//
//	sallyport/4f1d2c3b5a697887                       the log's origin, also the name of its key
//	1234                                             entries
//	qINS1GRFhWHwdkUeqLEoP4yEMkTBBzxBkGwGQlVlVcs=     root hash over them
//	sallyport-state 9Zf2KzLb…                        digest of the store's state at that size; older checkpoints have none
//
//	— sallyport/4f1d2c3b5a697887 Az3grlgtzPICa5OS…   Ed25519 signature
//
// An export is those files in a tar archive:
//
//	checkpoint
//	audit.pub                        the key's public half, as the log has it
//	tile/<level>/<n>[.p/<width>]     hashes; x001/234 stands for n = 1234
//	tile/entries/<n>[.p/<width>]     256 leaves or the rest, each behind its length in two bytes
//	payload/<sha256>                 arguments and results that were too large for an entry, redacted
//
// It promises: anybody with the public key and a checkpoint that was kept elsewhere finds every change to the entries that it covers. It
// does not promise anything against the holder of signing.key, who can write another history: only checkpoints kept out of their reach
// reveal that (the anchors of Verify).
//
// An entry names the rows of the store's state that changed with it (Row), so that the log says what the state is (Fold). Verify holds the entries
// against each other, and where the state lies beside the log, the state against both.
//
// The package knows no database: the store keeps entries and complete tiles in the same transaction as the state that they record, and
// implements Source and StateSource.
package audit
