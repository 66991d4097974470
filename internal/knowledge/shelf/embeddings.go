package shelf

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
)

const embeddingsSchema = `
CREATE TABLE IF NOT EXISTS knowledge_embeddings (
	n          INTEGER PRIMARY KEY,
	id         TEXT NOT NULL UNIQUE CHECK (id <> ''), -- of the model and the chunk's text, keyed with the document's key
	model      TEXT NOT NULL CHECK (model <> ''),
	dimensions INTEGER NOT NULL CHECK (dimensions > 0),
	sealed     BLOB NOT NULL -- as knowledge_contents has texts
);
CREATE INDEX IF NOT EXISTS knowledge_embeddings_model ON knowledge_embeddings (model);
CREATE TABLE IF NOT EXISTS knowledge_embedded ( -- texts of which every chunk has an embedding
	n       INTEGER PRIMARY KEY,
	content TEXT NOT NULL CHECK (content <> ''),
	model   TEXT NOT NULL CHECK (model <> ''),
	dimensions INTEGER NOT NULL CHECK (dimensions > 0),
	UNIQUE (content, model)
);
CREATE TRIGGER IF NOT EXISTS knowledge_embeddings_update BEFORE UPDATE ON knowledge_embeddings
BEGIN SELECT RAISE(ABORT, 'knowledge_embeddings is append-only'); END;
CREATE TRIGGER IF NOT EXISTS knowledge_embeddings_delete BEFORE DELETE ON knowledge_embeddings
BEGIN SELECT RAISE(ABORT, 'knowledge_embeddings is append-only'); END;
CREATE TRIGGER IF NOT EXISTS knowledge_embeddings_insert BEFORE INSERT ON knowledge_embeddings
WHEN EXISTS (SELECT 1 FROM knowledge_embeddings WHERE id = NEW.id OR n = NEW.n)
BEGIN SELECT RAISE(ABORT, 'knowledge_embeddings is append-only'); END;
CREATE TRIGGER IF NOT EXISTS knowledge_embedded_update BEFORE UPDATE ON knowledge_embedded
BEGIN SELECT RAISE(ABORT, 'knowledge_embedded is append-only'); END;
CREATE TRIGGER IF NOT EXISTS knowledge_embedded_delete BEFORE DELETE ON knowledge_embedded
BEGIN SELECT RAISE(ABORT, 'knowledge_embedded is append-only'); END;
CREATE TRIGGER IF NOT EXISTS knowledge_embedded_insert BEFORE INSERT ON knowledge_embedded
WHEN EXISTS (SELECT 1 FROM knowledge_embedded WHERE content = NEW.content AND model = NEW.model OR n = NEW.n)
BEGIN SELECT RAISE(ABORT, 'knowledge_embedded is append-only'); END;
`

// embeddingID names the embedding of a chunk of a document by a model. It says nothing to whoever has not the key.
func embeddingID(key []byte, model, chunk string) string {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("embedding\x00" + model + "\x00"))
	h.Write([]byte(chunk))
	return hex.EncodeToString(h.Sum(nil))
}

// keyOf is the key of a document. NotFound: it was destroyed.
func keyOf(ctx context.Context, q interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}, document string) (key []byte, err error) {
	err = q.QueryRowContext(ctx, "SELECT key FROM document_keys WHERE document = $1", document).Scan(&key)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fault.New(fault.NotFound, "The text of %s is not here.", document)
	}
	return key, unavailable(err)
}

// Unembedded tells which of a document's chunks have no embedding by a model yet.
func (s *Shelf) Unembedded(ctx context.Context, document, model string, chunks []string) (missing []int, err error) {
	key, err := keyOf(ctx, s.db, document)
	if err != nil {
		return nil, err
	}
	for i, chunk := range chunks {
		var n int
		err := s.db.QueryRowContext(ctx, "SELECT 1 FROM knowledge_embeddings WHERE id = $1", embeddingID(key, model, chunk)).Scan(&n)
		if errors.Is(err, sql.ErrNoRows) {
			missing = append(missing, i)
		} else if err != nil {
			return nil, unavailable(err)
		}
	}
	return missing, nil
}

// PutEmbeddings keeps embeddings of chunks of a document, durably. All embeddings by one model have the same number of dimensions. NotFound: the document was erased meanwhile.
func (s *Shelf) PutEmbeddings(ctx context.Context, document, model string, chunks []string, vectors [][]float32) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return unavailable(err)
	}
	defer tx.Rollback() // does nothing after the commit
	key, err := keyOf(ctx, tx, document)
	if err != nil {
		return err
	}
	for i, v := range vectors {
		dimensions := len(v)
		err := tx.QueryRowContext(ctx, "SELECT dimensions FROM knowledge_embeddings WHERE model = $1 LIMIT 1", model).Scan(&dimensions)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return unavailable(err)
		}
		if dimensions != len(v) || len(v) == 0 || len(v) > knowledge.MaxDimensions {
			return fault.New(fault.ResultInvalid, "An embedding of %s has %d numbers, and others have %d.", model, len(v), dimensions).
				Try("Pin the model by a name that stays with one version. If the first embeddings were the wrong ones, set knowledge.dimensions to the number that the model's have: then all are fetched anew.")
		}
		id := embeddingID(key, model, chunks[i])
		var there int
		switch err := tx.QueryRowContext(ctx, "SELECT 1 FROM knowledge_embeddings WHERE id = $1", id).Scan(&there); {
		case err == nil: // two chunks have the same words
			continue
		case !errors.Is(err, sql.ErrNoRows):
			return unavailable(err)
		}
		sealed, err := seal(key, id, string(packed(v)))
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO knowledge_embeddings (id, model, dimensions, sealed) VALUES ($1, $2, $3, $4)", id, model, len(v), sealed); err != nil {
			return unavailable(err)
		}
	}
	return unavailable(tx.Commit())
}

// MarkEmbedded says that every chunk of a text has an embedding by a model, and returns their dimensions.
func (s *Shelf) MarkEmbedded(ctx context.Context, content, model string) (dimensions int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.db.QueryRowContext(ctx, "SELECT dimensions FROM knowledge_embeddings WHERE model = $1 LIMIT 1", model).Scan(&dimensions); err != nil {
		return 0, unavailable(err)
	}
	_, err = s.db.ExecContext(ctx, "INSERT INTO knowledge_embedded (content, model, dimensions) SELECT $1, $2, $3 WHERE NOT EXISTS (SELECT 1 FROM knowledge_embedded WHERE content = $1 AND model = $2)", content, model, dimensions)
	return dimensions, unavailable(err)
}

// Embedded are the texts of which every chunk has an embedding by a model, each with the dimensions.
func (s *Shelf) Embedded(ctx context.Context, model string) (texts map[string]int, err error) {
	texts = map[string]int{}
	err = eachRow(ctx, s.db, "SELECT content, dimensions FROM knowledge_embedded WHERE model = $1", func(rows *sql.Rows) error {
		var content string
		var dimensions int
		err := rows.Scan(&content, &dimensions)
		texts[content] = dimensions
		return err
	}, model)
	return texts, unavailable(err)
}

// embedding reads the embedding of a chunk.
func embedding(ctx context.Context, get *sql.Stmt, key []byte, model, chunk string) ([]float32, error) {
	id := embeddingID(key, model, chunk)
	var sealed []byte
	if err := get.QueryRowContext(ctx, id).Scan(&sealed); err != nil {
		return nil, unavailable(err)
	}
	b, err := unseal(key, id, sealed)
	if err != nil || len(b)%4 != 0 || len(b) == 0 {
		return nil, fault.Wrap(err, fault.StoreUnavailable, "An embedding in %s was changed.", File).
			Try("Find out who can write the data directory, and put back a backup of the whole directory.")
	}
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32([]byte(b[i*4 : i*4+4])))
	}
	return v, nil
}

func packed(v []float32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, f := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return b
}
