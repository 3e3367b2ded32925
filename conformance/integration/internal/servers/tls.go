package servers

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"strings"
	"time"

	"github.com/testcontainers/testcontainers-go"
)

// startTLS starts a server that has no other port than for TLS, and no default
// user.
func (s *Server) startTLS(ctx context.Context) error {
	ports, err := s.listen(ctx, 1)
	if err != nil {
		return err
	}
	cert, key, err := certify()
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
	s.admin = s.Endpoint
	s.admin.User, s.admin.Password = "admin", rand.Text()

	args := []string{
		"--port", "0", "--tls-port", ports[0],
		"--tls-cert-file", certFile, "--tls-key-file", keyFile, "--tls-ca-cert-file", certFile,
		"--tls-auth-clients", "no",
	}
	for _, user := range []string{
		"default off",
		s.admin.User + " on >" + s.admin.Password + " ~* +@all",
		s.User + " on >" + s.Password + " ~weir* " + ACL,
	} {
		args = append(append(args, "--user"), strings.Fields(user)...)
	}
	err = s.startNodeWith(ctx, ports[0], files, args...)
	if err != nil {
		return err
	}
	s.Addrs = []string{s.Nodes[0].Addr}
	s.admin.Addrs = s.Addrs
	return s.await(ctx)
}

// certify returns a certificate for the loopback interface, which signs itself,
// and its key, as PKCS #8.
func certify() (cert *x509.Certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "weir test"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:                  true,
		BasicConstraintsValid: true,
		IPAddresses:           []net.IP{loopback.AsSlice()},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, err
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		return nil, nil, err
	}
	key, err = x509.MarshalPKCS8PrivateKey(private)
	return cert, key, err
}
