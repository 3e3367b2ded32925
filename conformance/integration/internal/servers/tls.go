package servers

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"strings"

	"github.com/testcontainers/testcontainers-go"
)

// admin is the user of such a server who may do everything.
const admin = "admin"

// startTLS starts a server that has no other port than for TLS, and no default
// user.
func (s *Server) startTLS(ctx context.Context, ports []string) error {
	// The certificate of httptest is for the loopback interface, and signs itself.
	example := httptest.NewTLSServer(nil)
	defer example.Close()
	cert := example.Certificate()
	key, err := x509.MarshalPKCS8PrivateKey(example.TLS.Certificates[0].PrivateKey)
	if err != nil {
		return err
	}
	file := func(path string, block *pem.Block) testcontainers.ContainerFile {
		// The server may run as a user who is not the owner.
		return testcontainers.ContainerFile{Reader: bytes.NewReader(pem.EncodeToMemory(block)), ContainerFilePath: path, FileMode: 0o644}
	}
	const certFile, keyFile = "/weir.crt", "/weir.key"
	files := []testcontainers.ContainerFile{
		file(certFile, &pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}),
		file(keyFile, &pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}
	s.User, s.Password = "weir", rand.Text()
	s.TLS = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	s.TLS.RootCAs.AddCert(cert)
	s.admin = rand.Text()

	args := []string{
		"--port", "0", "--tls-port", ports[0],
		"--tls-cert-file", certFile, "--tls-key-file", keyFile, "--tls-ca-cert-file", certFile,
		"--tls-auth-clients", "no",
	}
	for _, user := range []string{
		"default off",
		admin + " on >" + s.admin + " ~* +@all",
		s.User + " on >" + s.Password + " ~weir* " + ACL,
	} {
		args = append(append(args, "--user"), strings.Fields(user)...)
	}
	return s.startNode(ctx, ports[0], args, testcontainers.WithFiles(files...))
}
