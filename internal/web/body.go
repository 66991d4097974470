package web

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

// JSON reads a body of at most limit bytes whose media type must be JSON. It does not parse it. With optional, the body may be empty. room is asked before
// each piece of a body that does not say its length.
func JSON(w http.ResponseWriter, r *http.Request, limit int64, optional bool, room call.Room) ([]byte, error) {
	return body(w, r, "application/json", limit, optional, room)
}

// Announced is how many bytes the body is going to have; 0 where the request does not say it, and where that is over the limit, so that none will be read.
func Announced(r *http.Request, limit int64) int64 {
	if r.ContentLength < 0 || r.ContentLength > limit {
		return 0
	}
	return r.ContentLength
}

// Form reads a form of at most limit bytes into r.PostForm. A field that is there twice could be read in two ways, and is refused.
func Form(w http.ResponseWriter, r *http.Request, limit int64) error {
	b, err := body(w, r, "application/x-www-form-urlencoded", limit, true, nil)
	if err != nil {
		return err
	}
	form, err := url.ParseQuery(string(b))
	if err != nil {
		return fault.Wrap(err, fault.RequestMalformed, "The form could not be read; nothing was done.").Try("Go back and send it again.")
	}
	for name, values := range form {
		if len(values) > 1 {
			return fault.New(fault.RequestMalformed, "The field is there more than once; nothing was done.").At(name)
		}
	}
	r.PostForm = form
	return nil
}

// File is a file that came with a form. Its name is the sender's word, without folders.
type File struct {
	Name    string
	Content []byte
}

// maxParts bounds the fields and files of a form.
const maxParts = 1000

// Upload reads a form with files, of at most limit bytes: its fields into r.PostForm, as Form does, and the files that it has. A form without files may come as for Form.
func Upload(w http.ResponseWriter, r *http.Request, limit int64) (files []File, err error) {
	media, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "multipart/form-data" {
		return nil, Form(w, r, limit)
	}
	boundary := parameters["boundary"]
	b, err := body(w, r, "", limit, true, nil)
	if err != nil {
		return nil, err
	}
	unreadable := func(err error) error {
		return fault.Wrap(err, fault.RequestMalformed, "The form could not be read; nothing was done.").Try("Go back and send it again.")
	}
	if boundary == "" || len(boundary) > 70 {
		return nil, unreadable(nil)
	}
	form, parts := url.Values{}, multipart.NewReader(bytes.NewReader(b), boundary)
	for n := 0; ; n++ {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			break
		}
		if err != nil || n == maxParts {
			return nil, unreadable(err)
		}
		content, err := io.ReadAll(part)
		if err != nil {
			return nil, unreadable(err)
		}
		switch name := part.FormName(); {
		case part.FileName() != "":
			files = append(files, File{part.FileName(), content})
		case form.Has(name):
			return nil, fault.New(fault.RequestMalformed, "The field is there more than once; nothing was done.").At(name)
		case name != "" && (len(content) > 0 || part.Header.Get("Content-Type") == ""): // else a field for files in which none was chosen
			form.Set(name, string(content))
		}
	}
	r.PostForm = form
	return files, nil
}

func body(w http.ResponseWriter, r *http.Request, media string, limit int64, optional bool, room call.Room) ([]byte, error) {
	b, err := read(w, r, limit, room)
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		if r.Header.Get("Expect") == "" { // the answer would be lost if the connection were cut while the client still writes
			_, _ = io.CopyN(io.Discard, r.Body, 2*limit) // best effort, within the deadline for the body
		}
		return nil, WithStatus(http.StatusRequestEntityTooLarge, fault.New(fault.RequestMalformed, "A body has at most %d bytes here.", limit))
	}
	switch {
	case fault.Is(err, fault.LimitRate):
		return nil, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, WithStatus(http.StatusRequestTimeout, fault.Wrap(err, fault.RequestMalformed, "The body came too slowly: each %d KiB of it have %s, and all of it has %s.", piece>>10, pieceTime, bodyTime))
	case err != nil:
		return nil, fault.Wrap(err, fault.RequestMalformed, "The body could not be read to its end.")
	}
	if len(b) == 0 && optional {
		return nil, nil
	}
	if media != "" && !isMedia(r.Header.Get("Content-Type"), media) { // "": the caller has looked
		return nil, WithStatus(http.StatusUnsupportedMediaType, fault.New(fault.RequestMalformed, "The body must be %s, in UTF-8.", media).
			At("Content-Type").Try("Send Content-Type: %s, with no parameter but charset=utf-8.", media))
	}
	if r.Header.Get("Content-Encoding") != "" {
		return nil, WithStatus(http.StatusUnsupportedMediaType, fault.New(fault.RequestMalformed, "The body must not be compressed.").At("Content-Encoding"))
	}
	return b, nil
}

// read reads the whole body within the deadline that Handler has set, and each piece of it within pieceTime: a body that trickles in would hold its
// memory for nothing. It then removes the deadline, whose end would look as if the client had gone. Memory grows with the bytes that came, not with the
// announced length.
func read(w http.ResponseWriter, r *http.Request, limit int64, room call.Room) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, &http.MaxBytesError{Limit: limit}
	}
	in, connection := http.MaxBytesReader(w, r.Body, limit), http.NewResponseController(w)
	var b []byte
	var err error
	if n := r.ContentLength; n > 0 && n <= piece {
		_ = connection.SetReadDeadline(time.Now().Add(pieceTime)) // best effort: test recorders have none
		b = make([]byte, n)
		_, err = io.ReadFull(in, b)
	} else {
		if n > 0 && room != nil { // its memory has been taken
			b = make([]byte, 0, n+1)
		}
		b, err = readPieces(in, connection, b, int(n), room)
	}
	if err == nil {
		_ = connection.SetReadDeadline(time.Time{}) // best effort, too
	}
	return b, err
}

// readPieces reads a body that has several pieces into b. It has the announced bytes, -1 if nothing was said: then room is asked before each piece.
func readPieces(in io.Reader, connection *http.ResponseController, b []byte, announced int, room call.Room) ([]byte, error) {
	end := time.Now().Add(bodyTime)
	for {
		next := piece
		if announced >= 0 {
			next = min(next, announced-len(b)+1) // one more, to see the end
		} else if room != nil {
			if err := room.More(next); err != nil {
				return nil, err
			}
		}
		deadline := time.Now().Add(pieceTime)
		if deadline.After(end) {
			deadline = end
		}
		_ = connection.SetReadDeadline(deadline)
		b = slices.Grow(b, next)
		for full := len(b) + next; len(b) < full; {
			n, err := in.Read(b[len(b):full])
			b = b[:len(b)+n]
			if errors.Is(err, io.EOF) {
				return b, nil
			}
			if err != nil {
				return nil, err
			}
		}
	}
}

// isMedia tells whether a Content-Type is that media type, with no parameter but charset=utf-8.
func isMedia(contentType, media string) bool {
	if contentType == media {
		return true
	}
	is, parameters, err := mime.ParseMediaType(contentType)
	if err != nil || is != media {
		return false
	}
	for name, value := range parameters {
		if name != "charset" || !strings.EqualFold(value, "utf-8") {
			return false
		}
	}
	return true
}
